package postgres

import (
	"errors"
	"fmt"
	"strings"
)

// Besides [ErrNotInstalled] and [*VersionError], these tell apart what a
// person must do when the database does not start.
var (
	// ErrInUse: a server that is not ours to adopt holds the cluster, or one
	// is in the way and neither answers nor goes.
	ErrInUse = errors.New("the database is in use by another server")
	// ErrNotCluster: the directory holds something else than a database of
	// Cuelight, and nothing in it was touched.
	ErrNotCluster = errors.New("not a database of Cuelight")
	// ErrAccount: the server has nobody to run as. It refuses to be root, so
	// it needs a system user, and one that may enter the directory.
	ErrAccount = errors.New("no account to run the database as")
)

// Error is a start or a stop that did not work, in words for a person.
type Error struct {
	Problem string // what is wrong, one sentence without a full stop
	Advice  string // what to do about it, or empty
	Detail  string // lines from the server's log or the like, or empty
	Err     error  // what caused it, one of this package's errors or another; may be nil
}

// Error is problem, advice and detail, the detail on lines of its own.
func (e *Error) Error() string {
	s := e.Problem
	if e.Advice != "" {
		s += "; " + e.Advice
	}
	if e.Detail != "" {
		s += "\n  " + strings.ReplaceAll(strings.TrimSpace(e.Detail), "\n", "\n  ")
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// VersionError is a cluster that none of the installed servers can open: each
// major version reads its own format only.
type VersionError struct {
	Dir   string     // the cluster
	Major int        // the version that made it
	Found []Binaries // what is installed instead, never empty
}

func (e *VersionError) Error() string {
	var found []string
	for _, b := range e.Found {
		found = append(found, fmt.Sprintf("%s in %s", b.Version, b.Dir))
	}
	return fmt.Sprintf("the database in %s was made by PostgreSQL %d and only that version opens it, but there is %s; %s, or move the data with pg_dump or pg_upgrade",
		e.Dir, e.Major, strings.Join(found, ", "), installLine(fmt.Sprint(e.Major)))
}
