package media

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc, on every architecture.
const clockTick = time.Second / 100

// readResourceUsage reads the vitals of a process and of those below it.
func readResourceUsage(pid int) resourceUsage {
	v := resourceUsage{}
	for _, p := range processTree(pid, 0) {
		f := statFields(fmt.Sprintf("/proc/%d/stat", p))
		if len(f) < 15 {
			continue // it has ended
		}
		v.known = true
		// utime, stime, and the same of children that have ended.
		for _, field := range f[11:15] {
			n, _ := strconv.ParseInt(field, 10, 64)
			v.cpu += time.Duration(n) * clockTick
		}
		v.bytes += ioBytes(p)
	}
	return v
}

// ioBytes is how many bytes a process has read and written. A host may
// forbid to ask; then processor time has to do.
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

// isRunnable reports whether a thread of a process, or of one below it, has a
// processor or waits for one.
func isRunnable(pid int) bool {
	for _, p := range processTree(pid, 0) {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", p))
		for _, task := range tasks {
			if f := statFields(fmt.Sprintf("/proc/%d/task/%s/stat", p, task.Name())); len(f) > 0 && f[0] == "R" {
				return true
			}
		}
	}
	return false
}

// statFields are the fields of a stat file from the state on. The name before
// it may have anything in it, also spaces and parentheses.
func statFields(file string) []string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}
