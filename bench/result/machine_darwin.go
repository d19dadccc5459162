package result

import "golang.org/x/sys/unix"

func cpu() string {
	name, _ := unix.Sysctl("machdep.cpu.brand_string")
	return name
}

func memory() uint64 {
	n, _ := unix.SysctlUint64("hw.memsize")
	return n
}

func kernel() string {
	release, _ := unix.Sysctl("kern.osrelease")
	return "Darwin " + release
}

func filesystem(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return ""
	}
	return unix.ByteSliceToString(st.Fstypename[:]) + " on " + unix.ByteSliceToString(st.Mntfromname[:])
}
