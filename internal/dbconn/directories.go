package dbconn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/usererr"
)

// PrivateDir is the name of the private database's directory in the data directory.
const PrivateDir = "postgres"

// DefaultDataDir returns the directory that systemd made for a unit of cuelight, else the system's directory for
// data of programs, or that of the user. It returns "" if there is no home directory.
func DefaultDataDir(env Environment) string {
	home := env.Get("HOME")
	state, _, _ := strings.Cut(env.Get("STATE_DIRECTORY"), ":")
	switch {
	case filepath.IsAbs(state) && strings.HasPrefix(filepath.Base(state), "cuelight"): // not of a service that runs cuelight
		return state
	case os.Geteuid() == 0 && runtime.GOOS != "darwin":
		return "/var/lib/cuelight"
	case runtime.GOOS == "darwin" && home != "":
		return filepath.Join(home, "Library", "Application Support", "cuelight")
	case filepath.IsAbs(env.Get("XDG_DATA_HOME")):
		return filepath.Join(env.Get("XDG_DATA_HOME"), "cuelight")
	case home != "":
		return filepath.Join(home, ".local", "share", "cuelight")
	}
	return ""
}

// DataPath returns the absolute path of the data directory on this host, which need not exist.
func (o *Options) DataPath() (string, error) {
	dir := o.DataDir
	if storage.IsAddress(dir) {
		dir = o.LocalDir
	}
	if dir == "" {
		dir = DefaultDataDir(o.Env)
	}
	if dir == "" {
		return "", usererr.Usagef("there is no home directory for the data directory: set one with --data-dir")
	}
	return absolute("data", dir)
}

// PublishPath returns the absolute path of the directory for published videos. It is empty if
// they are in a bucket.
func (o *Options) PublishPath() (string, error) {
	if o.PublishDir != "" && !storage.IsAddress(o.PublishDir) {
		return absolute("publish", o.PublishDir)
	}
	data, err := o.DataPath()
	return filepath.Join(data, "published"), err
}

// Directories returns DataPath and PublishPath.
func (o *Options) Directories() (data, published string, err error) {
	if data, err = o.DataPath(); err == nil {
		published, err = o.PublishPath()
	}
	return data, published, err
}

// Buckets returns the addresses of the buckets for data and for published videos, empty for those
// that are directories. Without a publish directory, a bucket for data has both.
func (o *Options) Buckets() (data, published string) {
	if storage.IsAddress(o.DataDir) {
		data = o.DataDir
	}
	switch {
	case storage.IsAddress(o.PublishDir):
		published = o.PublishDir
	case o.PublishDir == "" && data != "":
		location, options, _ := strings.Cut(data, "?")
		published = strings.TrimSuffix(location, "/") + "/published"
		if options != "" {
			published += "?" + options
		}
	}
	return data, published
}

// looksLikeURL matches what is meant as the address of a bucket, and would be a directory.
var looksLikeURL = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:/`)

// absolute refuses a path that the database, JSON or a file of lines would not keep as
// it is, and one that is meant as an address.
func absolute(kind, dir string) (string, error) {
	if looksLikeURL.MatchString(dir) {
		return "", &usererr.Error{
			Kind: usererr.Usage, Text: fmt.Sprintf("--%s-dir %s is neither a directory nor the address of a bucket", kind, usererr.Printable(dir)),
			Hint: "a bucket's address is s3://BUCKET/PREFIX; a directory of this name is ./" + usererr.Printable(dir),
		}
	}
	abs, err := filepath.Abs(dir)
	reason := ""
	switch {
	case err != nil:
		reason = err.Error()
	case !utf8.ValidString(abs):
		reason = "its name is not UTF-8"
	case strings.ContainsAny(abs, "\r\n"):
		reason = "there is a line break in its name"
	default:
		return abs, nil
	}
	return "", unusable(kind, dir, reason)
}

func unusable(kind, dir, reason string) error {
	return &usererr.Error{
		Kind: usererr.Usage,
		Text: fmt.Sprintf("the %s directory %s cannot be used: %s", kind, usererr.Printable(dir), reason),
		Hint: fmt.Sprintf("fix it, or set another with --%s-dir", kind),
	}
}

// MakeDirectories creates both directories, or reports why they cannot be used.
func MakeDirectories(data, published string) error {
	if err := MakeWritable("data", data); err != nil {
		return err
	}
	_, err := os.Stat(published)
	created := errors.Is(err, fs.ErrNotExist)
	if err := MakeWritable("publish", published); err != nil || !created {
		return err
	}
	// A web server reads it, whatever the umask. An existing directory keeps its mode.
	return os.Chmod(published, 0o755)
}

// MakeWritable creates a directory and tests it with [CheckWritable]. The kind, data or
// publish, is for the error.
func MakeWritable(kind, dir string) error {
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = CheckWritable(dir)
	}
	if err != nil {
		return unusable(kind, dir, usererr.SystemMessage(err))
	}
	return nil
}

// CheckWritable writes a temporary file into dir. The directory's mode alone would not
// show that a disk is read-only or full, or that an access list forbids it.
func CheckWritable(dir string) error {
	f, err := os.CreateTemp(dir, ".cuelight-check-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}
