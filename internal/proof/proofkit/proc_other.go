//go:build !linux

package proofkit

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

var errOnlyLinux = errors.New("the use of processors and memory can only be read on Linux")

// ProcessesInSession reports whether a process of the group still runs. Only Linux says which
// ones, and what else is in the session.
func ProcessesInSession(id int) ([]string, error) {
	switch err := syscall.Kill(-id, 0); {
	case errors.Is(err, syscall.ESRCH):
		return nil, nil
	case err == nil || errors.Is(err, syscall.EPERM):
		return []string{fmt.Sprintf("a process of group %d", id)}, nil
	default:
		return nil, fmt.Errorf("list processes: %w", err)
	}
}

// ChildrenRunning returns nothing: it needs /proc.
func ChildrenRunning(int, string) []int { return nil }

// CPUTime returns an error: it needs /proc.
func CPUTime(int) (time.Duration, error) { return 0, errOnlyLinux }

// FamilyCPUTime returns an error: it needs /proc.
func FamilyCPUTime(int) (time.Duration, error) { return 0, errOnlyLinux }

// ParentPID returns an error: it needs /proc.
func ParentPID(int) (int, error) { return 0, errOnlyLinux }

// Memory returns an error: it needs /proc.
func Memory(int) (resident, anonymous int64, err error) { return 0, 0, errOnlyLinux }
