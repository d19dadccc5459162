package video

import (
	"os"

	"golang.org/x/sys/unix"
)

// localFilesystems are the file systems that one kernel has to itself.
var localFilesystems = map[int64]bool{
	unix.EXT4_SUPER_MAGIC:      true, // 2 and 3, too
	unix.XFS_SUPER_MAGIC:       true,
	unix.BTRFS_SUPER_MAGIC:     true,
	unix.F2FS_SUPER_MAGIC:      true,
	unix.TMPFS_MAGIC:           true,
	unix.OVERLAYFS_SUPER_MAGIC: true,
	0x2fc12fc1:                 true, // ZFS
	0xca451a4e:                 true, // bcachefs
}

// isLocal reports whether a file lies on a disk of this host, as far as is
// known. One that is exported to others is, too.
func isLocal(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) == nil && localFilesystems[int64(st.Type)]
}

// touch sets a directory's time to now, by the clock of whoever keeps it: of
// the server, where it is on a network.
func touch(dir string) error {
	now := unix.Timespec{Nsec: unix.UTIME_NOW}
	return unix.UtimesNanoAt(unix.AT_FDCWD, dir, []unix.Timespec{now, now}, unix.AT_SYMLINK_NOFOLLOW)
}
