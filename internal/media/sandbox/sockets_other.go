//go:build !linux || !(amd64 || arm64)

package sandbox

import (
	"errors"
	"net"
	"os/exec"
)

// Sockets returns an error on this system.
func (p *Policy) Sockets(*exec.Cmd) (net.Listener, error) { return nil, CheckSockets() }

// CheckSockets returns an error on this system.
func CheckSockets() error { return errors.New("this system has no seccomp") }
