//go:build !linux

package invariant

import (
	"errors"
	"fmt"
	"syscall"
)

// Processes says whether a process of a group still runs. Which ones, and what
// else is in the group's session, is known on Linux only.
func Processes(group int) ([]string, error) {
	switch err := syscall.Kill(-group, 0); {
	case errors.Is(err, syscall.ESRCH):
		return nil, nil
	case err == nil || errors.Is(err, syscall.EPERM):
		return []string{fmt.Sprintf("a process of group %d", group)}, nil
	default:
		return nil, fmt.Errorf("list processes: %w", err)
	}
}
