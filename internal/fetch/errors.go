package fetch

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/ssrf"
)

// Error says why a source could not be fetched.
//
// Permanent are the errors that lie in the source itself: no such file, not a
// regular file, empty, an address that is not public or answers 404. All
// others may be over by the next attempt: a full disk, a broken connection, a
// server that is overloaded, a name that does not resolve. So is a file that
// may not be read, since that is mended on this host, not in the source.
type Error struct {
	Source     string        // the source as it may be shown: quoted, without secrets
	Permanent  bool          // another attempt cannot help
	RetryAfter time.Duration // the pause the server asked for; 0 if it did not
	Err        error         // why
}

func (e *Error) Error() string { return "fetch " + e.Source + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// refused makes a permanent error; describe adds the source.
func refused(format string, args ...any) error {
	return &Error{Permanent: true, Err: fmt.Errorf(format, args...)}
}

// sentenceError says in words what an error means that it keeps.
type sentenceError struct {
	text string
	err  error
}

func (e *sentenceError) Error() string { return e.text }
func (e *sentenceError) Unwrap() error { return e.err }

// noSpaceError is a full disk noticed in time; it matches ENOSPC, as does one
// that the kernel noticed.
type noSpaceError struct {
	dir                 string
	need, reserve, free int64
}

func (e *noSpaceError) Error() string {
	return fmt.Sprintf("not enough disk space for %q: %s needed, %s to be kept free, %s left",
		e.dir, bytesText(e.need), bytesText(e.reserve), bytesText(e.free))
}
func (e *noSpaceError) Unwrap() error { return syscall.ENOSPC }

// IsTooLarge reports whether err says that this source does not fit on a disk with
// room for smaller ones.
func IsTooLarge(err error) bool {
	var e *noSpaceError
	return errors.As(err, &e) && e.free >= e.reserve
}

// describe completes any error of this package with the source's label.
func describe(label string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		e.Source = label
		return e
	}
	return &Error{Source: label, Err: err}
}

// sourceError is what the system says about a local source, in words and
// without the path, which the label has.
func sourceError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return refused("%w", &sentenceError{"there is no such file", err})
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EINVAL):
		return refused("%w", withoutPath(err))
	case errors.Is(err, fs.ErrPermission):
		return &sentenceError{"this process may not read it", err}
	}
	return withoutPath(err)
}

// destinationError is what the system says about the place that is written to.
// None is the source's fault, so none is permanent.
func destinationError(dir string, err error) error {
	text := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		text = fmt.Sprintf("the disk that holds %q is full", dir)
	case errors.Is(err, syscall.EROFS):
		text = fmt.Sprintf("the disk that holds %q is read-only", dir)
	case errors.Is(err, fs.ErrPermission):
		text = fmt.Sprintf("this process may not write to %q", dir)
	case errors.Is(err, fs.ErrNotExist):
		text = fmt.Sprintf("the directory %q is gone", dir)
	default:
		return fmt.Errorf("write to %q: %w", dir, withoutPath(err))
	}
	return &sentenceError{text, err}
}

// withoutPath takes the system's own words out of the error types that repeat
// the path, in a form nobody can read if it is not valid UTF-8.
func withoutPath(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		return le.Err
	}
	return err
}

// connectError sorts what net and net/http say about a connection.
func connectError(err error) error {
	var certificate *tls.CertificateVerificationError
	if message, ok := ssrf.Describe(err); ok {
		return refused("%w", &sentenceError{message, err})
	}
	if errors.As(err, &certificate) {
		return refused("%w", err)
	}
	return err
}

func bytesText(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, prefix := float64(n)/unit, 0
	for v >= unit {
		v /= unit
		prefix++
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTPE"[prefix])
}
