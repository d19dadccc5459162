package postgres

import (
	"os"
	"path/filepath"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// anyProcessIn reports whether the working directory of any process is dir, as
// that of every process of a server is its cluster. known is false where the
// system does not say.
func anyProcessIn(dir string) (running, known bool) {
	want, err := os.Stat(dir)
	if err != nil {
		return false, false
	}
	cwds, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil || len(cwds) == 0 {
		return false, false
	}
	for _, cwd := range cwds {
		// A process whose directory is unreadable runs as another user. It cannot
		// be the server, which runs as this user, unless this user is root.
		if is, err := os.Stat(cwd); err == nil && os.SameFile(is, want) {
			return true, true
		}
	}
	return false, true
}

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
