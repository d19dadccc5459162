package media

import (
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// availableMemory is the memory of this host, or of this process's control group if
// that is less.
func availableMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	own, _ := os.ReadFile("/proc/self/cgroup")
	return cgroupMemory("/sys/fs/cgroup", string(own), int64(info.Totalram)*int64(info.Unit))
}

// cgroupMemory returns the lowest limit of the control group and its parents, or all if
// that is less. own is the text of /proc/self/cgroup. Of version 1, only the limit
// of a container is read.
func cgroupMemory(root, own string, all int64) int64 {
	group := "/"
	for line := range strings.Lines(own) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			group = path.Join("/", name)
		}
	}
	files := []string{path.Join(root, "memory/memory.limit_in_bytes")}
	for ; ; group = path.Dir(group) {
		files = append(files, path.Join(root, group, "memory.max"))
		if group == "/" {
			break
		}
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
			all = min(all, n)
		}
	}
	return all
}
