package fetch

import (
	"os"

	"golang.org/x/sys/unix"
)

// clone makes the new file dst a reflink of src: they share blocks until one of them is
// written. Most file systems do not support it.
func clone(src *os.File, dst string) error {
	out, err := os.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	defer out.Close()
	return unix.IoctlFileClone(int(out.Fd()), int(src.Fd()))
}
