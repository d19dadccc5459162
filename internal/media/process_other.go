//go:build unix && !linux

package media

import (
	"context"
	"syscall"
)

// lowerPriority sets the child's nice value. An error is ignored: the child then
// runs with the priority of this process.
func lowerPriority(pid, nice int) {
	if nice > 0 {
		_ = syscall.Setpriority(syscall.PRIO_PGRP, pid, min(nice, 19))
	}
}

// lowerSessionPriority does nothing here.
func lowerSessionPriority(context.Context, int, int) {}

// Memory and activity of a child are not known here: only its output shows
// progress.
func oomKillCount() int64                 { return 0 }
func residentBytes(int) int64             { return 0 }
func availableMemory() int64              { return 0 }
func readResourceUsage(int) resourceUsage { return resourceUsage{} }
func isRunnable(int) bool                 { return false }
