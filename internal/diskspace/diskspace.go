//go:build unix

// Package diskspace finds out, before a file is written, whether the disk has room for
// it: call [Check]. The package reserves nothing: other processes may use the space first.
// [Used] and [Walk] measure what directories take.
package diskspace

import (
	"fmt"
	"syscall"
)

// Free returns how many bytes unprivileged processes can still write to the file system
// of dir, and its total size.
func Free(dir string) (free, size int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}

// Check returns a [*FullError] if need bytes in dir would leave less than the reserve
// free. If the free space is unknown, it returns nil, and a later write fails if the disk
// is full.
func Check(dir string, need, reserve int64) error {
	free, size, err := Free(dir)
	if err != nil || free >= need+reserve {
		return nil
	}
	return &FullError{Dir: dir, Need: need, Reserve: reserve, Free: free, Size: size}
}

// FullError is a full disk found before writing. Like the kernel's error it matches
// ENOSPC. Its numbers are bytes.
type FullError struct {
	Dir                       string
	Need, Reserve, Free, Size int64
}

func (e *FullError) Error() string {
	if e.ExceedsDisk() {
		return fmt.Sprintf("not enough disk space for %q: %s needed, but the whole disk has %s, of which %s must stay free; "+
			"use a larger disk", e.Dir, Format(e.Need), Format(e.Size), Format(e.Reserve))
	}
	return fmt.Sprintf("not enough disk space for %q: %s needed, %s must stay free, %s left; free some space",
		e.Dir, Format(e.Need), Format(e.Reserve), Format(e.Free))
}
func (e *FullError) Unwrap() error { return syscall.ENOSPC }

// ExceedsDisk reports whether even the empty disk would be too small. A reserve of at least
// the disk's size is a configuration error and says nothing about Need.
func (e *FullError) ExceedsDisk() bool { return e.Reserve < e.Size && e.Need > e.Size-e.Reserve }

// HasRoomForSmaller reports whether less than Need would fit.
func (e *FullError) HasRoomForSmaller() bool { return e.Free >= e.Reserve }

// Format returns a number of bytes with its unit.
func Format(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, prefix := float64(n)/unit, 0
	for v >= unit {
		v /= unit
		prefix++
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTPE"[prefix])
}
