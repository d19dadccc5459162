package video

import (
	"os"

	"golang.org/x/sys/unix"
)

// localFilesystems are the file systems that only one kernel uses.
var localFilesystems = map[int64]bool{
	unix.EXT4_SUPER_MAGIC:      true, // also ext2 and ext3
	unix.XFS_SUPER_MAGIC:       true,
	unix.BTRFS_SUPER_MAGIC:     true,
	unix.F2FS_SUPER_MAGIC:      true,
	unix.TMPFS_MAGIC:           true,
	unix.OVERLAYFS_SUPER_MAGIC: true,
	0x2fc12fc1:                 true, // ZFS
	0xca451a4e:                 true, // bcachefs
}

// isLocal reports whether a file is known to be on a disk of this host. The disk may
// still be exported to others.
func isLocal(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) == nil && localFilesystems[int64(st.Type)]
}

// touch sets a directory's time to now, by the clock of the file system: on a network
// file system, that of the server.
func touch(dir string) error {
	now := unix.Timespec{Nsec: unix.UTIME_NOW}
	return unix.UtimesNanoAt(unix.AT_FDCWD, dir, []unix.Timespec{now, now}, unix.AT_SYMLINK_NOFOLLOW)
}
