//go:build !linux

package sandbox

import (
	"os/exec"
	"runtime"
)

// Wrap changes nothing: there is no confinement here.
func (p Policy) Wrap(*exec.Cmd) error {
	if p.Require {
		return Check()
	}
	return nil
}

// Layers are none.
func Layers() []Layer {
	return []Layer{{Name: "confinement", Detail: "there is none on " + runtime.GOOS}}
}

// CanChangeUser reports that it cannot be done.
func CanChangeUser(int) bool { return false }

// HideProcess changes nothing.
func HideProcess() error { return nil }
