package stages

import (
	"fmt"
	"os"
	"strings"
)

func bootID() string { return firstLine("/proc/sys/kernel/random/boot_id") }

// pidNamespace is the kernel's name of the namespace of process ids. The kernel does not use
// the name again while a process in it exists.
func pidNamespace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "unknown"
	}
	return name
}

// processStart is the 22nd field of proc(5)'s stat: ticks since the boot.
func processStart(pid int) string { return statField(pid, 22) }

// isZombie reports whether a process has ended and its parent has not asked for its status yet. While
// other threads of it end, it may still have open connections.
func isZombie(pid int) bool {
	threads := statField(pid, 20)
	return statField(pid, 3) == "Z" && (threads == "0" || threads == "1")
}

// statField returns a field of proc(5)'s stat, counted from 1 as there, from the third one on. The second
// field, in parentheses, may contain spaces and parentheses.
func statField(pid, number int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < number-2 {
		return ""
	}
	return fields[number-3]
}

func firstLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.ReplaceAll(strings.TrimSpace(line), "/", "")
}
