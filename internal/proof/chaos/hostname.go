package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// ownHostname is the command that runs another command with a host name of its own, which that sets
// with setHostname.
var ownHostname = []string{"unshare", "--uts", "--"}

// canOwnHostname reports whether this program may give a process a host name of its own.
func canOwnHostname() bool {
	return exec.Command(ownHostname[0], append(ownHostname[1:], "true")...).Run() == nil
}

// setHostname sets the host name of this process, unless it is empty. It refuses to change the
// name of the machine.
func setHostname(name string) error {
	if name == "" {
		return nil
	}
	own, err := os.Readlink("/proc/self/ns/uts")
	if err != nil {
		return err
	}
	parent, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/uts", os.Getppid()))
	if err != nil {
		return err
	}
	if own == parent {
		return errors.New("this process has no host name of its own")
	}
	return os.WriteFile("/proc/sys/kernel/hostname", []byte(name), 0)
}
