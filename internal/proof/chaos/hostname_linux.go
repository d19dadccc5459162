package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// addUTSNamespace gives a process a host name of its own, which it sets with setHostname.
func addUTSNamespace(attr *syscall.SysProcAttr) { attr.Cloneflags |= syscall.CLONE_NEWUTS }

// canSetHostname tries it with a process that does nothing else.
func canSetHostname() bool {
	program, err := os.Executable()
	if err != nil {
		return false
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), roleEnv+"="+roleNamespaceHolder, hostEnv+"=chaos")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	addUTSNamespace(cmd.SysProcAttr)
	return cmd.Run() == nil
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
	parent, err := os.Readlink("/proc/" + strconv.Itoa(os.Getppid()) + "/ns/uts")
	if err != nil {
		return err
	}
	if own == parent {
		return errors.New("this process has no host name of its own")
	}
	return unix.Sethostname([]byte(name))
}
