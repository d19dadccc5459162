package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

// databaseDir is the private database's directory in the data directory.
const databaseDir = "postgres"

// defaultDataDir is where a user, or the machine when the user is root, keeps
// the data of programs. It is empty where there is no home directory.
func defaultDataDir(env environment) string {
	home := env.get("HOME")
	switch {
	case os.Geteuid() == 0 && runtime.GOOS != "darwin":
		return "/var/lib/cuelight"
	case runtime.GOOS == "darwin" && home != "":
		return filepath.Join(home, "Library", "Application Support", "cuelight")
	case filepath.IsAbs(env.get("XDG_DATA_HOME")):
		return filepath.Join(env.get("XDG_DATA_HOME"), "cuelight")
	case home != "":
		return filepath.Join(home, ".local", "share", "cuelight")
	}
	return ""
}

// data is the data directory, absolute. It need not exist.
func (c *cli) data() (string, error) {
	dir := c.dataDir
	if dir == "" {
		dir = defaultDataDir(c.env)
	}
	if dir == "" {
		return "", usagef("there is no home directory to keep data in: name a directory with --data-dir")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", usagef("data directory %s: %v", printable(dir), err)
	}
	return abs, checkName("data", abs)
}

// published is the directory that players are served from, absolute.
func (c *cli) published() (string, error) {
	if c.publishDir != "" {
		abs, err := filepath.Abs(c.publishDir)
		if err != nil {
			return "", usagef("publish directory %s: %v", printable(c.publishDir), err)
		}
		return abs, checkName("publish", abs)
	}
	data, err := c.data()
	return filepath.Join(data, "published"), err
}

// checkName refuses a directory whose name would not come back as it was: it is
// written to the database, to JSON and to files of lines.
func checkName(what, dir string) error {
	why := ""
	switch {
	case !utf8.ValidString(dir):
		why = "its name is not UTF-8"
	case strings.ContainsAny(dir, "\r\n"):
		why = "there is a line break in its name"
	default:
		return nil
	}
	return &problem{
		code: exitUsage,
		text: fmt.Sprintf("the %s directory %s cannot be used: %s", what, printable(dir), why),
		hint: fmt.Sprintf("name another with --%s-dir", what),
	}
}

// places are the data and the publish directory.
func (c *cli) places() (data, published string, err error) {
	if data, err = c.data(); err == nil {
		published, err = c.published()
	}
	return data, published, err
}

// makePlaces makes them, or finds that they cannot be used.
func makePlaces(data, published string) error {
	if err := makeWritable("data", data); err != nil {
		return err
	}
	_, err := os.Stat(published)
	made := errors.Is(err, fs.ErrNotExist)
	if err := makeWritable("publish", published); err != nil || !made {
		return err
	}
	// It is there to be served, whatever the umask; one that was there before
	// is as its owner wants it.
	return os.Chmod(published, 0o755)
}

// makeWritable makes a directory and tries to write in it, which says more
// than its mode: disks are read-only, full, or have lists of rights.
func makeWritable(what, dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = tryWrite(dir)
	}
	if err == nil {
		return nil
	}
	return &problem{
		code: exitUsage,
		text: fmt.Sprintf("the %s directory %s cannot be used: %s", what, printable(dir), systemWords(err)),
		hint: fmt.Sprintf("name another with --%s-dir, or mend this one", what),
	}
}

func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".cuelight-check-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// systemWords is what the system says, without the path, which is said already.
func systemWords(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return firstLine(err.Error())
}

// sourceOf makes of what a person typed what a task needs: the same file
// whatever the working directory of those who read it, in UTF-8.
func sourceOf(arg, workingDir string) (string, error) {
	if arg == "" {
		return "", usagef("an empty name is not a file")
	}
	if arg == "-" {
		return "", usagef(`standard input cannot be a source: name a file, or ./- for one that is called "-"`)
	}
	if isURL(arg) {
		source := escapeInvalid(arg)
		if err := fetch.CheckSource(source); err != nil {
			return "", usagef("%s: %v", shownSource(arg), err)
		}
		return source, nil
	}
	path := arg
	if !filepath.IsAbs(path) {
		// Not cleaned: where "a" is a symbolic link, "a/../b" is not "b".
		path = strings.TrimSuffix(workingDir, "/") + "/" + strings.TrimPrefix(path, "./")
	}
	return sourceOfPath(path), nil
}

// sourceOfPath is sourceOf for an absolute path.
func sourceOfPath(path string) string {
	if strings.ToValidUTF8(path, "") == path {
		return path
	}
	return "file://" + escapePath(path)
}

// isURL: a scheme and "://", the same rule by which the ingest stage decides.
func isURL(s string) bool {
	scheme, _, ok := strings.Cut(s, "://")
	if !ok || scheme == "" {
		return false
	}
	for i, r := range scheme {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || !(r >= '0' && r <= '9') && !strings.ContainsRune("+.-", r)) {
			return false
		}
	}
	return true
}

// shownSource is a source's public form, for people.
func shownSource(source string) string { return printable(redact.Source(source)) }

// shownTask is what a task is called, if its submitter calls it anything, or else
// its source.
func shownTask(t store.Task) string {
	if title := t.Title(); title != "" {
		return printable(title)
	}
	return shownSource(t.Source)
}

// labelOf is the last part of a source's name, for people.
func labelOf(source string) string { return printable(redact.Name(source)) }

// escapePath percent-encodes all that is not certainly itself in a URL's path.
func escapePath(path string) string {
	var b strings.Builder
	for i := range len(path) {
		ch := path[i]
		plain := ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || ch >= '0' && ch <= '9' || strings.IndexByte("/-._~", ch) >= 0
		if plain {
			b.WriteByte(ch)
		} else {
			fmt.Fprintf(&b, "%%%02X", ch)
		}
	}
	return b.String()
}

// escapeInvalid percent-encodes the bytes of an address that are not UTF-8.
func escapeInvalid(address string) string {
	var b strings.Builder
	for i, r := range address {
		if _, size := utf8.DecodeRuneInString(address[i:]); r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&b, "%%%02X", address[i])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
