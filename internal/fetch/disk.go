package fetch

import (
	"path/filepath"
	"syscall"
)

// FreeSpace returns how many bytes an unprivileged process can still write to the file
// system of dir.
func FreeSpace(dir string) (int64, error) {
	free, _, err := DiskSpace(dir)
	return free, err
}

// DiskSpace returns [FreeSpace] and the total size of the file system.
func DiskSpace(dir string) (free, size int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}

// ExceedsDisk reports whether need bytes do not fit even on the empty disk. A reserve of
// at least the disk's size is a configuration error and says nothing about need.
func ExceedsDisk(need, reserve, size int64) bool { return reserve < size && need > size-reserve }

// checkSpace returns an error if need bytes would not leave the reserve free: a
// permanent one if they do not fit even on the empty disk. If the free space is unknown,
// it returns nil, and a later write fails if the disk is full.
func checkSpace(dst string, need, reserve int64) error {
	dir := filepath.Dir(dst)
	free, size, err := DiskSpace(dir)
	if err != nil || free >= need+reserve {
		return nil
	}
	if ExceedsDisk(need, reserve, size) {
		return permanent("the file needs %s, but the whole disk of %q has only %s, of which %s stay free",
			formatBytes(need), dir, formatBytes(size), formatBytes(reserve))
	}
	return &noSpaceError{dir: dir, need: need, reserve: reserve, free: free}
}
