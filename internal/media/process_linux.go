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

// maxTreeDepth ends the search in a program that keeps starting itself.
const maxTreeDepth = 16

// processTree lists a process and its descendants. It reads only the main
// thread's children: ffmpeg has none, and shells, which do, have one thread.
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

// clockTick is the unit of times in /proc on every architecture.
const clockTick = time.Second / 100

// readResourceUsage reads the usage of a process and its descendants.
func readResourceUsage(pid int) resourceUsage {
	usage := resourceUsage{}
	for _, p := range processTree(pid, 0) {
		f := statFields(fmt.Sprintf("/proc/%d/stat", p))
		if len(f) < 15 {
			continue // it has ended
		}
		usage.known = true
		// utime and stime, its own and those of children that have ended
		for _, field := range f[11:15] {
			n, _ := strconv.ParseInt(field, 10, 64)
			usage.cpu += time.Duration(n) * clockTick
		}
		usage.bytes += ioBytes(p)
	}
	return usage
}

// ioBytes is how many bytes a process has read and written; 0 if the host does
// not permit reading it.
func ioBytes(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	sum := int64(0)
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if key == "rchar" || key == "wchar" {
			n, _ := strconv.ParseInt(value, 10, 64)
			sum += n
		}
	}
	return sum
}

// isRunnable reports whether a thread of a process or a descendant has a
// processor or waits for one.
func isRunnable(pid int) bool {
	for _, p := range processTree(pid, 0) {
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p))
		for _, thread := range threads {
			if f := statFields(fmt.Sprintf("/proc/%d/task/%s/stat", p, thread.Name())); len(f) > 0 && f[0] == "R" {
				return true
			}
		}
	}
	return false
}

// statFields are the fields of a stat file from the state on. The name before it
// may contain spaces and parentheses.
func statFields(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}
