package pgserver

import "golang.org/x/sys/unix"

// plenty is the free memory that makes a directory in it a good idea: servers
// of several test processes may share it, at some 200 MB each.
const plenty = 2 << 30

// memoryDir is a directory whose files are in memory, if there is one to use.
func memoryDir() (string, bool) {
	const dir = "/dev/shm"
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		return "", false
	}
	return dir, st.Bavail*uint64(st.Bsize) >= plenty
}
