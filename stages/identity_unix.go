//go:build unix

package stages

import (
	"errors"
	"syscall"
)

// isGone reports whether no process has the id.
func isGone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
