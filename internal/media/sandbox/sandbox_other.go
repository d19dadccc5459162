//go:build !linux

package sandbox

import (
	"os/exec"
	"runtime"
)

// Wrap changes nothing: this system has no confinement. It returns an error if p requires one.
func (p Policy) Wrap(*exec.Cmd) error {
	if p.Require {
		return Check()
	}
	return nil
}

// Layers returns one layer, which is not offered.
func Layers() []Layer {
	return []Layer{{Name: "confinement", Detail: "there is none on " + runtime.GOOS}}
}

// CanChangeUser returns false.
func CanChangeUser(int) bool { return false }

// HideProcess changes nothing.
func HideProcess() error { return nil }
