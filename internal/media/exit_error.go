package media

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
)

// exitError is a child that ended badly for a reason not known better.
type exitError struct {
	tool   string
	code   int // -1 when a signal ended it
	signal syscall.Signal
	// outOfMemory says that while it ran, the kernel killed somebody because memory
	// ran out.
	outOfMemory bool
	tail        string
}

func (e *exitError) Error() string {
	what := fmt.Sprintf("%s ended with code %d", e.tool, e.code)
	switch {
	case e.signal == syscall.SIGKILL && e.outOfMemory:
		what = fmt.Sprintf("%s was killed by the kernel: memory ran out on this host", e.tool)
	case e.signal == syscall.SIGKILL:
		what = fmt.Sprintf("%s was killed by somebody else (signal: %v)", e.tool, e.signal)
	case e.signal != 0:
		what = fmt.Sprintf("%s was ended by a signal (%v)", e.tool, e.signal)
	}
	if e.tail == "" {
		return what
	}
	return what + ": " + e.tail
}

// Is reports that memory ran out.
func (e *exitError) Is(target error) bool {
	return target == ErrMemory && e.outOfMemory && e.signal == syscall.SIGKILL
}

func exitErrorOf(tool string, err error, tail string, memory bool) error {
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		if err != nil {
			return fmt.Errorf("run %s: %w", tool, err)
		}
		return nil
	}
	return &exitError{tool: tool, code: exit.ExitCode(), signal: exitSignal(exit.ProcessState), outOfMemory: memory, tail: tail}
}

// hostMessages are the C library's words for what lies in the host and not in the
// source. Which of them can be the source's fault as well, as "Input/output
// error" can, is not among them.
var hostMessages = map[string]error{
	"Cannot allocate memory":           ErrMemory,
	"malloc of size":                   ErrMemory, // x264's own
	"Resource temporarily unavailable": syscall.EAGAIN,
	"Too many open files":              syscall.EMFILE,
	"Permission denied":                syscall.EACCES,
	"No such file or directory":        syscall.ENOENT,
	"Stale file handle":                syscall.ESTALE,
}

// hostError finds in a child's last words what blames the host.
func hostError(tail string) error {
	for text, err := range hostMessages {
		if strings.Contains(tail, text) {
			return err
		}
	}
	return nil
}

// ignoreSourceErrors keeps errors that are not the source's fault: of an exit code
// only those that blame the host.
func ignoreSourceErrors(out stderrReport, err error) error {
	exit := (*exitError)(nil)
	if !errors.As(err, &exit) || exit.signal != 0 {
		return err
	}
	if trouble := hostError(out.tail); trouble != nil {
		return fmt.Errorf("%w: %w", trouble, err)
	}
	return nil
}
