//go:build unix && !linux

package media

import (
	"context"
	"syscall"
)

// dieWithParent has no counterpart here: children of a killed process run on.
func dieWithParent(*syscall.SysProcAttr) {}

// soften makes the child give way to others. It is a courtesy: a host that
// forbids it loses nothing.
func soften(pid, nice int) {
	if nice > 0 {
		_ = syscall.Setpriority(syscall.PRIO_PGRP, pid, min(nice, 19))
	}
}

// softenSession has no counterpart here.
func softenSession(context.Context, int, int) {}

// awaitExit does not wait: what a child that ends by itself leaves behind is
// not found here.
func awaitExit(int) (ended bool) { return false }

func oomKills() int64         { return 0 }
func residentBytes(int) int64 { return 0 }

// availableMemory is not known here, and memory is not watched.
func availableMemory() int64 { return 0 }
