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

	"github.com/prometheus/procfs"
)

// lowerPriority sets the child's OOM score and nice value. Errors are ignored:
// the child then runs with the priority of this process.
func lowerPriority(pid, nice int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(oomScore)), 0)
	if nice > 0 {
		_ = syscall.Setpriority(syscall.PRIO_PGRP, pid, min(nice, 19))
	}
}

// The kernel accepts one change of a session's priority per tenth of a second
// from all unprivileged users together.
const autogroupRetryDelay, autogroupTries = 110 * time.Millisecond, 20

// lowerSessionPriority sets the nice value of the child's session. If the kernel
// divides processors between sessions first (sched(7), "The autogroup
// feature"), a nice value counts only within its session. An encoder in the
// daemon's session would take processors from the database and the daemon.
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

// oomKillCount is how many processes of this host the kernel has killed for lack
// of memory.
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

// residentBytes is the resident memory of a process and its descendants.
func residentBytes(pid int) (bytes int64) {
	for _, p := range processTree(pid, 0) {
		if stat, err := p.Stat(); err == nil { // otherwise it has ended
			bytes += int64(stat.ResidentMemory())
		}
	}
	return bytes
}

// maxTreeDepth ends the search in a program that keeps starting itself.
const maxTreeDepth = 16

// processTree lists a process and its descendants. It reads only the main
// thread's children: ffmpeg has none, and shells, which do, have one thread.
func processTree(pid, depth int) []procfs.Proc {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return nil
	}
	tree := []procfs.Proc{process}
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

// clockTick is the unit of times in /proc on every architecture.
const clockTick = time.Second / 100

// readResourceUsage reads the usage of a process and its descendants, including those
// that have ended.
func readResourceUsage(pid int) resourceUsage {
	usage := resourceUsage{}
	for _, p := range processTree(pid, 0) {
		stat, err := p.Stat()
		if err != nil {
			continue // it has ended
		}
		usage.known = true
		usage.cpu += time.Duration(int(stat.UTime+stat.STime)+stat.CUTime+stat.CSTime) * clockTick
		if io, err := p.IO(); err == nil { // some hosts do not permit reading it
			usage.bytes += int64(io.RChar + io.WChar)
		}
	}
	return usage
}

// isRunnable reports whether a thread of a process or a descendant has a
// processor or waits for one.
func isRunnable(pid int) bool {
	for _, p := range processTree(pid, 0) {
		threads, _ := procfs.AllThreads(p.PID)
		for _, thread := range threads {
			if stat, err := thread.Stat(); err == nil && stat.State == "R" {
				return true
			}
		}
	}
	return false
}
