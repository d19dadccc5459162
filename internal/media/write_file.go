package media

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// writeFile replaces a file atomically.
func writeFile(file string, content []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(file), ".write-*")
	if err != nil {
		return spaceError(err)
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(content); err != nil {
		return spaceError(err)
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return spaceError(err)
	}
	if err := f.Close(); err != nil {
		return spaceError(err)
	}
	return os.Rename(f.Name(), file)
}

// spaceError adds ErrNoSpace to the errors of a full disk.
func spaceError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
