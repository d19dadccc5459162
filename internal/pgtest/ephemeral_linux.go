package pgtest

import (
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// childrenOf lists the running children of a process.
func childrenOf(parent int) (children []int, err error) {
	all, err := procfs.AllProcs()
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PPID == parent { // otherwise it has just ended
			children = append(children, p.PID)
		}
	}
	return children, err
}

// enoughMemory is how much must be free: servers of several test processes share
// the file system, and each takes some 200 MB.
const enoughMemory = 2 << 30

// memoryDir is a directory whose files are in memory, if there is enough of it.
func memoryDir() (string, bool) {
	const dir = "/dev/shm"
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		return "", false
	}
	return dir, st.Bavail*uint64(st.Bsize) >= enoughMemory
}
