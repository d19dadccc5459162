package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockPause is the time between two tries for a lock that is taken. The kernel
// has no lock to wait for that a context could interrupt.
const lockPause = 25 * time.Millisecond

// How a lock is held: by many, or by one.
const (
	lockShared    = syscall.LOCK_SH
	lockExclusive = syscall.LOCK_EX
)

// openLock opens a lock file. It must be writable for all who lock it: network
// file systems grant exclusive locks on nothing less.
func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// lock waits for the lock; how is lockShared or lockExclusive. Closing the file
// releases it.
func lock(ctx context.Context, f *os.File, how int) error {
	for {
		taken, err := tryLock(f, how)
		if taken || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the lock on %s: %w", f.Name(), context.Cause(ctx))
		case <-time.After(lockPause):
		}
	}
}

func tryLock(f *os.File, how int) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
	}
}
