package fetch

import (
	"os"

	"golang.org/x/sys/unix"
)

// clone makes dst, which must not exist, share src's blocks until one of the
// two is written to. Most file systems cannot do that.
func clone(src *os.File, dst string) error {
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	defer out.Close()
	return unix.IoctlFileClone(int(out.Fd()), int(src.Fd()))
}
