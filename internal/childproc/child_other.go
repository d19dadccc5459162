//go:build unix && !linux

package childproc

import "syscall"

// setDeathSignal has no counterpart here: children of a killed program run on.
func setDeathSignal(*syscall.SysProcAttr) {}

// waitExit does not wait: Go offers no wait here that leaves the child unreaped.
func waitExit(int) bool { return false }
