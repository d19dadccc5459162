package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The names of what there is in Options.Dir and, for a cluster that had to move,
// in its new home. Anything else in there is not ours.
const (
	lockName    = "lock"                  // exclusive: who starts or stops the server
	usersName   = "users"                 // shared: who uses it
	movedToName = "moved-to"              // where the home is if not here
	dataName    = "data"                  // the cluster
	runName     = "run"                   // the socket, where its path is short enough
	logName     = "server.log"            // what the server says
	oldLogName  = "server.log.1"          // what it said before that
	ownerName   = "belongs-to"            // in a new home: the Options.Dir that names it
	tempPattern = "cuelight-initdb-*.tmp" // a cluster in the making
)

// sharedPrefix begins the names of our socket directories in public places.
const sharedPrefix = "cuelight-"

// maxSocketPath is the longest path of a socket that every system takes,
// without the byte that ends it.
const maxSocketPath = 102

// checkForeign refuses a directory that somebody else uses, before anything is
// made in it.
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
			return nil // what they are is looked at later
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
	return notCluster(dir, "holds other things ("+strings.Join(foreign, ", ")+")")
}

func notCluster(dir, why string) error {
	return &Error{
		Problem: fmt.Sprintf("%s %s and no database of Cuelight", dir, why),
		Advice:  "name another directory; nothing in this one was changed",
		Err:     ErrNotCluster,
	}
}

// findHome tells where the cluster of dir is, or should be made.
func findHome(dir, elsewhere string, as func() (Account, error), b Binaries) (string, error) {
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
	account, err := as()
	if err != nil {
		return "", err
	}
	if account.CanEnter(b, dir) {
		return dir, nil
	}
	home, err := makeElsewhere(dir, elsewhere)
	if err == nil && !account.CanEnter(b, home) {
		err = fmt.Errorf("it cannot enter %s either", home)
	}
	if err != nil {
		return "", &Error{
			Problem: fmt.Sprintf("user %q, whom the server must run as, cannot enter %s, and there is no other place for the database: %v", account.Name, dir, err),
			Advice:  fmt.Sprintf("use a directory that everybody may pass through, or allow it: chmod o+x '%s'", account.blockedAt(b, dir)),
			Err:     ErrAccount,
		}
	}
	// A crash before this leaves an empty directory behind, never two homes.
	return home, writeFileSync(link, home+"\n")
}

// makeElsewhere makes a home that is not below dir. Its name is made up rather
// than derived from dir, so that a new directory with an old one's path does
// not get the old one's database.
func makeElsewhere(dir, elsewhere string) (string, error) {
	if err := makePassable(elsewhere); err != nil {
		return "", err
	}
	home, err := os.MkdirTemp(elsewhere, "db-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(home, 0o711); err != nil {
		return "", err
	}
	return home, writeFileSync(filepath.Join(home, ownerName), dir+"\n")
}

// makePassable makes a directory that others may pass through, whatever the
// umask, and leaves an existing one as it is.
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

// followLink checks that home is dir's. After a move of dir it becomes dir's;
// after a copy it stays with the original.
func followLink(dir, home string) (string, error) {
	text, err := os.ReadFile(filepath.Join(home, ownerName))
	if errors.Is(err, os.ErrNotExist) {
		return "", &Error{
			Problem: fmt.Sprintf("%s says that its database is in %s, but it is not there", dir, home),
			Advice:  "mount or restore that directory; to begin with an empty database instead, remove the file " + movedToName,
			Err:     ErrNotCluster,
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
			Problem: fmt.Sprintf("%s is a copy of %s, and the database in %s belongs to the original", dir, owner, home),
			Advice:  "use the original; to begin with an empty database here, remove the file " + movedToName + " from the copy",
			Err:     ErrNotCluster,
		}
	}
	return home, writeFileSync(filepath.Join(home, ownerName), dir+"\n")
}

// blockedAt is the first directory on the way to dir that the account cannot
// enter.
func (a Account) blockedAt(b Binaries, dir string) string {
	at := dir
	for d := dir; ; d = filepath.Dir(d) {
		if !a.CanEnter(b, d) {
			at = d
		}
		if d == filepath.Dir(d) {
			return at
		}
	}
}

func sameDir(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// socketDir makes the directory for the socket: in home if its path is short
// enough and clients can write it down, else in a place for such things.
func socketDir(home string, as Account) (string, error) {
	sum := sha256.Sum256([]byte(home))
	id := hex.EncodeToString(sum[:6])
	candidates := []string{filepath.Join(home, runName)}
	if as.cred != nil {
		candidates = append(candidates, "/run/"+sharedPrefix+id)
	}
	// Not $XDG_RUNTIME_DIR: it is taken away when the user logs out, from under
	// a server that goes on. The server touches its files in /tmp every hour.
	candidates = append(candidates, fmt.Sprintf("/tmp/%s%d-%s", sharedPrefix, as.UID, id))

	var errs []error
	for _, dir := range candidates {
		if len(socketPath(dir)) > maxSocketPath || strings.ContainsAny(dir, ",\r\n") {
			continue // clients take a comma for the end of a name
		}
		err := ownDir(dir, as)
		if err == nil {
			return dir, nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("make a directory for the socket: %w", errors.Join(errs...))
}

func socketPath(dir string) string { return dir + "/.s.PGSQL." + port }

// ownDir makes sure that dir is a directory only the account can use. In a
// public place somebody else may have been there first.
func ownDir(dir string, as Account) error {
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil:
		return as.Own(dir)
	case !errors.Is(err, os.ErrExist):
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || ownerOf(info) != as.UID {
		return fmt.Errorf("%s is not a directory of user %s with mode 0700", dir, as.Name)
	}
	return nil
}

func ownerOf(info os.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

// writeFileSync puts a small file in place so that after a crash there is the
// old one, the new one or none, never half of one.
func writeFileSync(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // not there any more when all went well
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
