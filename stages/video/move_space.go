package video

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/cuelight/cuelight/internal/diskspace"
)

// diskUse is what the running copies of a Move need of the disks.
type diskUse struct {
	mu      sync.Mutex
	running map[string]int64 // bytes of a copy that are not linked, by its directory
}

// use checks that the disk has room for a copy, and for the rest of those that are running on it. The
// caller calls done when the copy has ended.
func (u *diskUse) use(dir string, bytes, reserve int64) (done func(), err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	done = func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.running, dir)
	}
	missing, err := missingBytes(dir, bytes)
	if err != nil || missing == 0 {
		return done, err
	}
	disk := deviceOf(filepath.Dir(dir))
	for other, bytes := range u.running {
		if deviceOf(filepath.Dir(other)) != disk {
			continue
		}
		// A copy that cannot be read has ended, or fails.
		rest, _ := missingBytes(other, bytes)
		missing += rest
	}
	if err := diskspace.Check(filepath.Dir(dir), missing, reserve); err != nil {
		return done, err
	}
	if u.running == nil {
		u.running = make(map[string]int64)
	}
	u.running[dir] = bytes
	return done, nil
}

// missingBytes is how much of a directory must still be downloaded.
func missingBytes(dir string, bytes int64) (int64, error) {
	err := filepath.WalkDir(dir+".tmp", func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it is being replaced
		}
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink == 1 { // others are linked
			bytes -= info.Size()
		}
		return nil
	})
	return max(bytes, 0), err
}

// deviceOf is the number of a directory's file system, or 0 if it cannot be read.
func deviceOf(dir string) uint64 {
	info, err := os.Stat(dir)
	if err != nil {
		return 0
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return uint64(st.Dev)
}
