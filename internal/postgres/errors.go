package postgres

import (
	"errors"
	"fmt"
	"strings"
)

// These errors, [ErrNotInstalled] and [*VersionError] are the reasons for a failed
// start that an operator can do something about.
var (
	// ErrInUse means that a server which Cuelight did not start holds the cluster,
	// or that an earlier server neither answers nor ends.
	ErrInUse = errors.New("the database is in use by another server")
	// ErrNotCluster means that the directory does not contain a database of
	// Cuelight. Nothing in it was changed.
	ErrNotCluster = errors.New("not a database of Cuelight")
	// ErrAccount means that no user can run the server. It refuses to run as root,
	// so it needs a system user that may enter the directory.
	ErrAccount = errors.New("no user can run the database")
)

// Error is a failed start or stop, described for an operator.
type Error struct {
	Text   string // one sentence without a full stop
	Hint   string // what to do next, or empty
	Detail string // lines of the server's log or of other output, or empty
	Err    error  // the cause: an error of this package, another, or nil
}

// Error returns the text and the hint, followed by the indented lines of the detail.
func (e *Error) Error() string {
	s := e.Text
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	if e.Detail != "" {
		s += "\n  " + strings.ReplaceAll(strings.TrimSpace(e.Detail), "\n", "\n  ")
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// VersionError means that none of the installed servers can open the cluster: each
// major version reads only its own format.
type VersionError struct {
	Dir   string     // the cluster
	Major int        // its version
	Found []Binaries // the installed versions, never empty
}

func (e *VersionError) Error() string {
	var found []string
	for _, b := range e.Found {
		found = append(found, fmt.Sprintf("%s in %s", b.Version, b.Dir))
	}
	return fmt.Sprintf("the database in %s needs PostgreSQL %d, but this machine has %s; "+
		"%s, or move the data with pg_dump or pg_upgrade", e.Dir, e.Major, strings.Join(found, ", "),
		installLine(fmt.Sprint(e.Major)))
}
