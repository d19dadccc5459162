package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// ownHost gives a process a host's name of its own, which it sets itself.
func ownHost(attr *syscall.SysProcAttr) { attr.Cloneflags |= syscall.CLONE_NEWUTS }

// mayOwnHosts finds out, with a process that does nothing else.
func mayOwnHosts() bool {
	self, err := os.Executable()
	if err != nil {
		return false
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+roleHolder, hostEnv+"=chaos")
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	ownHost(cmd.SysProcAttr)
	return cmd.Run() == nil
}

// nameHost names the host this process is on, which must not be everybody's.
func nameHost(name string) error {
	if name == "" {
		return nil
	}
	ours, err := os.Readlink("/proc/self/ns/uts")
	if err != nil {
		return err
	}
	parents, err := os.Readlink("/proc/" + strconv.Itoa(os.Getppid()) + "/ns/uts")
	if err != nil {
		return err
	}
	if ours == parents {
		return errors.New("this host's name is not this process's own")
	}
	return unix.Sethostname([]byte(name))
}

// below are the pids of the children of a process which run the program.
func below(pid int, program string) []int {
	lists, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	var found []int
	for _, list := range lists {
		text, _ := os.ReadFile(list) // what is gone has none
		for number := range strings.FieldsSeq(string(text)) {
			name, err := os.ReadFile("/proc/" + number + "/comm")
			if child, bad := strconv.Atoi(number); err == nil && bad == nil && strings.TrimSpace(string(name)) == program {
				found = append(found, child)
			}
		}
	}
	return found
}
