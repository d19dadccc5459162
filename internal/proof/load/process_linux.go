package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the kernel's unit of processor time in /proc, on every architecture that
// Go knows.
const tick = 10 * time.Millisecond

// stat are a process's fields of /proc/PID/stat after its name.
func stat(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return nil, fmt.Errorf("process %d: %q is not what it should be", pid, text)
	}
	return fields, nil
}

// processor is the time that a process has used itself; with children also that
// of those which have ended.
func processor(pid int, children bool) (time.Duration, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	last := 13 // user and system time are 11 and 12, of children 13 and 14
	if children {
		last = 15
	}
	var all time.Duration
	for _, f := range fields[11:last] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		all += time.Duration(n) * tick
	}
	return all, nil
}

// parent is a process's parent.
func parent(pid int) (int, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(fields[1])
}

// family is the processor time of a process and of all its children, also of those
// that have ended.
func family(pid int) (time.Duration, error) {
	all, err := processor(pid, true)
	if err != nil {
		return 0, err
	}
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		child, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		// One that ends in between counts as its parent's.
		if p, err := parent(child); err != nil || p != pid {
			continue
		}
		if took, err := processor(child, true); err == nil {
			all += took
		}
	}
	return all, nil
}

// memory is what a process has in memory, in bytes, and how much of that is its own
// and not of files.
func memory(pid int) (resident, own int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		name, value, _ := strings.Cut(line, ":")
		n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			resident = n << 10
		case "RssAnon":
			own = n << 10
		}
	}
	if resident == 0 {
		return 0, 0, fmt.Errorf("process %d does not say what it has in memory", pid)
	}
	return resident, own, nil
}

// apart gives a child a session of its own, and has it end with the program that
// started it.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
}
