package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func setDeathSignal(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// lowerPriority makes the child give way to others. It is a courtesy: a host that
// forbids it loses nothing.
func lowerPriority(pid, nice int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(oomScore)), 0)
	if nice > 0 {
		_ = syscall.Setpriority(syscall.PRIO_PGRP, pid, min(nice, 19))
	}
}

// The kernel takes one change of a session's priority in a tenth of a second from
// all who are not its administrator.
const autogroupRetryDelay, autogroupTries = 110 * time.Millisecond, 20

// lowerSessionPriority does for the child's session what soften did for the child. Where
// the kernel shares the processors between sessions first (sched(7), "The autogroup
// feature"), the priority of a process says something only among those of its own
// session: an encoder in the daemon's would take the processor from the database
// and the daemon itself, however low it was.
func lowerSessionPriority(ctx context.Context, pid, nice int) {
	if nice <= 0 {
		return
	}
	text := []byte(strconv.Itoa(min(nice, 19)))
	for range autogroupTries {
		err := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), text, 0)
		if !errors.Is(err, syscall.EAGAIN) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(autogroupRetryDelay):
		}
	}
}

// waitForExit waits until a child has ended, and leaves it as it is.
func waitForExit(pid int) (ended bool) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return err == nil
		}
	}
}

// oomKillCount is how often the kernel has killed a process of this host because
// memory ran out.
func oomKillCount() int64 {
	text, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte("\noom_kill "))
	number, _, _ := bytes.Cut(rest, []byte("\n"))
	n, _ := strconv.ParseInt(string(number), 10, 64)
	return n
}

// residentBytes is how much memory a process and those below it have resident.
func residentBytes(pid int) int64 {
	pages := int64(0)
	for _, p := range processTree(pid, 0) {
		var size, resident int64
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p))
		if err != nil {
			continue // it has ended
		}
		if _, err := fmt.Sscan(string(text), &size, &resident); err == nil {
			pages += resident
		}
	}
	return pages * int64(os.Getpagesize())
}

// maxTreeDepth keeps a program that starts itself over and over from being followed
// for ever.
const maxTreeDepth = 16

// processTree is a process and those below it. Programs of several threads would
// have to be asked for each; ffmpeg has no children, and shells, which do, have
// one thread.
func processTree(pid, depth int) []int {
	tree := []int{pid}
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil || depth == maxTreeDepth {
		return tree
	}
	for number := range strings.FieldsSeq(string(children)) {
		if child, err := strconv.Atoi(number); err == nil {
			tree = append(tree, processTree(child, depth+1)...)
		}
	}
	return tree
}
