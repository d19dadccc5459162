package result

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// cpu returns the name of the processor, or the architecture if there is no name.
func cpu() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func memory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}

func kernel() string {
	data, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return "Linux " + strings.TrimSpace(string(data))
}

// filesystem returns the type of dir's file system and what is mounted.
func filesystem(dir string) string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	return findMount(data, dir)
}

// findMount finds the mount of a directory in the kernel's list. The last of several at one
// path hides the others.
func findMount(mountinfo []byte, dir string) string {
	longest, found := "", ""
	for line := range bytes.Lines(mountinfo) {
		left, right, ok := strings.Cut(string(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(r) < 2 {
			continue
		}
		path := unescape.Replace(l[4])
		if len(path) >= len(longest) && isBelow(dir, path) {
			longest, found = path, r[0]+" on "+unescape.Replace(r[1])
		}
	}
	return found
}

func isBelow(dir, parent string) bool {
	rel, err := filepath.Rel(parent, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}

// unescape replaces the kernel's escapes in paths.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
