package stages

import (
	"fmt"
	"os"
	"strings"
)

func bootID() string { return firstLine("/proc/sys/kernel/random/boot_id") }

// processSpace is the kernel's name for a namespace of process ids. It is not
// given to another one before the last process in it is gone.
func processSpace() string {
	name, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "unknown"
	}
	return name
}

// processStart is the 22nd field of proc(5)'s stat: ticks since the boot. The
// second one, in parentheses, may hold anything.
func processStart(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}
