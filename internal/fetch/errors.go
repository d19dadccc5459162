package fetch

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/ssrf"
)

// Error says why a source could not be fetched.
//
// An error is permanent if its reason is the source: the file does not exist, is empty
// or is not a regular file; the address is not public or answers 404. Other errors can
// be over at the next attempt: a full disk, a broken connection, an overloaded server, a
// name that does not resolve, and a file that this process may not read, because the
// operator can change that on this host.
type Error struct {
	Source     string        // the source for display: quoted, without secrets
	Permanent  bool          // another attempt cannot help
	RetryAfter time.Duration // from the server's header; 0 if there is none
	Err        error         // the reason
}

func (e *Error) Error() string { return "fetch " + e.Source + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// permanent returns a permanent error. withSource adds the source.
func permanent(format string, args ...any) error {
	return &Error{Permanent: true, Err: fmt.Errorf(format, args...)}
}

// withSource converts any error of this package to an [*Error] with the source's label.
func withSource(label string, err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.Source = label
		return e
	}
	return &Error{Source: label, Err: err}
}

// messageError replaces the message of an error that it wraps.
type messageError struct {
	text string
	err  error
}

func (e *messageError) Error() string { return e.text }
func (e *messageError) Unwrap() error { return e.err }

// checkSpace returns an error if need bytes would not leave the reserve free: a
// permanent one if they do not fit even on the empty disk.
func checkSpace(dst string, need, reserve int64) error {
	err := diskspace.Check(filepath.Dir(dst), need, reserve)
	if full, ok := errors.AsType[*diskspace.FullError](err); ok && full.ExceedsDisk() {
		return permanent("%w", err)
	}
	return err
}

// sourceError explains a system error about a local source, without its path: the label
// has it.
func sourceError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return permanent("%w", &messageError{"there is no such file", err})
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL):
		return permanent("%w", withoutPath(err))
	case errors.Is(err, fs.ErrPermission):
		return &messageError{"this process may not read it", err}
	}
	return withoutPath(err)
}

// destinationError explains a system error about the directory that Fetch writes to. It
// is never permanent, because the source is not its reason. It returns nil for nil.
func destinationError(dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &messageError{fmt.Sprintf("the disk that holds %q is full", dir), err}
	case errors.Is(err, syscall.EROFS):
		return &messageError{fmt.Sprintf("the disk that holds %q is read-only", dir), err}
	case errors.Is(err, fs.ErrPermission):
		return &messageError{fmt.Sprintf("this process may not write to %q", dir), err}
	case errors.Is(err, fs.ErrNotExist):
		return &messageError{fmt.Sprintf("the directory %q does not exist", dir), err}
	}
	return fmt.Errorf("write to %q: %w", dir, withoutPath(err))
}

// withoutPath unwraps the error types that repeat the path: it is unreadable if it is
// not valid UTF-8.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

// connectError makes the errors of a connection permanent that another attempt cannot
// change: a prohibited address and an invalid certificate.
func connectError(err error) error {
	if message, ok := ssrf.Describe(err); ok {
		return permanent("%w", &messageError{message, err})
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return permanent("%w", err)
	}
	return err
}
