package media

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/cuelight/cuelight/internal/media/sandbox"
)

// exitError is a child's failure without a more specific reason.
type exitError struct {
	tool   string
	code   int // -1 after a signal
	signal syscall.Signal
	// outOfMemory means that the kernel killed a process for lack of memory
	// while the child ran.
	outOfMemory bool
	tail        string
}

func (e *exitError) Error() string {
	text := fmt.Sprintf("%s ended with code %d", e.tool, e.code)
	switch {
	case e.signal == syscall.SIGKILL && e.outOfMemory:
		text = fmt.Sprintf("%s was killed by the kernel: memory ran out on this host", e.tool)
	case e.signal == syscall.SIGKILL:
		text = fmt.Sprintf("%s was killed by another process (signal: %v)", e.tool, e.signal)
	case e.signal != 0:
		text = fmt.Sprintf("%s was ended by a signal (%v)", e.tool, e.signal)
	}
	if e.tail == "" {
		return text
	}
	return text + ": " + e.tail
}

// Is matches ErrMemory if memory ran out.
func (e *exitError) Is(target error) bool {
	return target == ErrMemory && e.outOfMemory && e.signal == syscall.SIGKILL
}

func exitErrorOf(tool string, err error, tail string, outOfMemory bool) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrWaitDelay):
		return fmt.Errorf("run %s: %w", tool, exec.ErrWaitDelay)
	case !ok:
		return fmt.Errorf("run %s: %w", tool, err)
	}
	if reason := sandbox.Failure(exit.ExitCode(), tail); reason != "" {
		return fmt.Errorf("%w: %s: %s", ErrSandbox, tool, reason)
	}
	signal := syscall.Signal(0)
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		signal = status.Signal()
	}
	return &exitError{tool: tool, code: exit.ExitCode(), signal: signal, outOfMemory: outOfMemory, tail: tail}
}

// hostMessages are the C library's messages about errors of the host. Messages
// that a damaged source may also cause, such as "Input/output error", are not
// among them.
var hostMessages = map[string]error{
	"Cannot allocate memory":           ErrMemory,
	"malloc of size":                   ErrMemory, // x264
	"Resource temporarily unavailable": syscall.EAGAIN,
	"Too many open files":              syscall.EMFILE,
	"Permission denied":                syscall.EACCES,
	"No such file or directory":        syscall.ENOENT,
	"Stale file handle":                syscall.ESTALE,
}

// hostError finds an error of the host in a child's messages.
func hostError(tail string) error {
	for text, err := range hostMessages {
		if strings.Contains(tail, text) {
			return err
		}
	}
	return nil
}

// exitBySource returns the exit that the source caused. All other errors, such as those
// of the host and signals, are the second result.
func exitBySource(err error) (*exitError, error) {
	exit, ok := errors.AsType[*exitError](err)
	if !ok || exit.signal != 0 {
		return nil, err
	}
	if hostErr := hostError(exit.tail); hostErr != nil {
		return nil, fmt.Errorf("%w: %w", hostErr, err)
	}
	return exit, nil
}
