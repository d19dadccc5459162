package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The home of a cluster is the directory that contains it: Options.Dir, or a
// directory below Options.FallbackDir. These are the names of the files in both.
const (
	lockName    = "lock"                  // exclusive lock: starting or stopping the server
	usersName   = "users"                 // shared lock: using the server
	movedToName = "moved-to"              // contains the path of a home below Options.FallbackDir
	dataName    = "data"                  // the cluster
	runName     = "run"                   // the socket, if the path is short enough
	logName     = "server.log"            // the server's messages
	oldLogName  = "server.log.1"          // the older messages
	ownerName   = "belongs-to"            // in such a home: the Options.Dir that uses it
	tempPattern = "cuelight-initdb-*.tmp" // an incomplete cluster
)

// checkForeign refuses a directory that contains other files, before anything is
// created in it.
func checkForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read database directory: %w", err)
	}
	var foreign []string
	for _, e := range entries {
		temp, _ := filepath.Match(tempPattern, e.Name())
		switch e.Name() {
		case dataName, movedToName:
			return nil // locate checks them
		case lockName, usersName, runName, logName, oldLogName, "lost+found":
		default:
			if !temp && !strings.HasPrefix(e.Name(), ".") {
				foreign = append(foreign, e.Name())
			}
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	if n := len(foreign); n > 3 {
		foreign = append(foreign[:3], fmt.Sprintf("and %d more", n-3))
	}
	return notCluster(dir, "contains other files ("+strings.Join(foreign, ", ")+")")
}

func notCluster(dir, why string) error {
	return &Error{
		Text: fmt.Sprintf("%s is not a database of Cuelight: it %s", dir, why),
		Hint: "choose another directory; nothing in this one was changed",
		Err:  ErrNotCluster,
	}
}

// findHome finds the home of the cluster of dir, or chooses one.
func findHome(dir, fallbackDir string, b Binaries) (string, error) {
	link := filepath.Join(dir, movedToName)
	switch text, err := os.ReadFile(link); {
	case err == nil:
		return followLink(dir, strings.TrimSuffix(string(text), "\n"))
	case !errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("find database: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, dataName)); err == nil || os.Geteuid() != 0 {
		return dir, nil
	}
	account, err := LookupAccount()
	if err != nil {
		return "", err
	}
	if account.CanEnter(b, dir) {
		return dir, nil
	}
	home, err := makeFallbackHome(dir, fallbackDir)
	if err == nil && !account.CanEnter(b, home) {
		err = fmt.Errorf("it cannot enter %s either", home)
	}
	if err != nil {
		return "", &Error{
			Text: fmt.Sprintf("user %q, which must run the server, cannot enter %s, and no other directory is usable: %v",
				account.Name, dir, err),
			Hint: fmt.Sprintf("use a directory that all users may pass through, or allow it: chmod o+x '%s'",
				account.blockedAt(b, dir)),
			Err: ErrAccount,
		}
	}
	// A crash before this line leaves an empty directory, never two homes.
	return home, writeFileSync(link, home+"\n")
}

// makeFallbackHome creates a home below fallbackDir. Its name is random and
// does not depend on dir, so that a new directory with an old path does not get the
// old database.
func makeFallbackHome(dir, fallbackDir string) (string, error) {
	if err := makePassable(fallbackDir); err != nil {
		return "", err
	}
	home, err := os.MkdirTemp(fallbackDir, "db-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(home, 0o711); err != nil {
		return "", err
	}
	return home, writeFileSync(filepath.Join(home, ownerName), dir+"\n")
}

// makePassable creates a directory that other users may pass through, regardless of
// the umask. It does not change an existing one.
func makePassable(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	switch err := os.Mkdir(dir, 0o711); {
	case err == nil:
		return os.Chmod(dir, 0o711)
	case errors.Is(err, os.ErrExist):
		return nil
	default:
		return err
	}
}

// followLink checks that the home belongs to dir. If dir was moved, the home follows;
// if dir is a copy, the home stays with the original.
func followLink(dir, home string) (string, error) {
	text, err := os.ReadFile(filepath.Join(home, ownerName))
	if errors.Is(err, os.ErrNotExist) {
		return "", &Error{
			Text: fmt.Sprintf("the database of %s should be in %s, but is not there", dir, home),
			Hint: "mount or restore that directory; to start with an empty database instead, remove the file " + movedToName,
			Err:  ErrNotCluster,
		}
	}
	if err != nil {
		return "", fmt.Errorf("find database: %w", err)
	}
	owner := strings.TrimSuffix(string(text), "\n")
	if owner == dir {
		return home, nil
	}
	link, err := os.ReadFile(filepath.Join(owner, movedToName))
	if err == nil && strings.TrimSuffix(string(link), "\n") == home && !sameDir(owner, dir) {
		return "", &Error{
			Text: fmt.Sprintf("%s is a copy of %s, and the database in %s belongs to the original", dir, owner, home),
			Hint: "use the original; to start with an empty database here, remove the file " + movedToName + " from the copy",
			Err:  ErrNotCluster,
		}
	}
	return home, writeFileSync(filepath.Join(home, ownerName), dir+"\n")
}

// blockedAt is the first directory on the path of dir that the account cannot enter.
func (a Account) blockedAt(b Binaries, dir string) string {
	blocked := dir
	for d := dir; ; d = filepath.Dir(d) {
		if !a.CanEnter(b, d) {
			blocked = d
		}
		if d == filepath.Dir(d) {
			return blocked
		}
	}
}

func sameDir(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// ownerOf is the user id of a file's owner, or -1.
func ownerOf(info os.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// writeFileSync replaces a small file so that after a crash there is the old file, the
// new one or none, never a part of one.
func writeFileSync(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // after an error; otherwise it was renamed
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// openLock opens a lock file, for writing: network file systems grant exclusive locks on
// nothing less.
func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
