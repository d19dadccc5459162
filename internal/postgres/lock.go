package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// lockRetryInterval is the time between two tries for a lock. The kernel offers no
// wait for a lock that a context can interrupt.
const lockRetryInterval = 25 * time.Millisecond

// A lock has many shared holders or one exclusive holder.
const (
	lockShared    = syscall.LOCK_SH
	lockExclusive = syscall.LOCK_EX
)

// openLock opens a lock file, for writing: network file systems grant exclusive
// locks on nothing less.
func openLock(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}

// lock waits for the lock in the mode lockShared or lockExclusive. Closing the file
// releases it.
func lock(ctx context.Context, f *os.File, mode int) error {
	for {
		if taken, err := tryLock(f, mode); taken || err != nil {
			return err
		}
		if err := ctxsleep.For(ctx, lockRetryInterval); err != nil {
			return fmt.Errorf("wait for the lock on %s: %w", f.Name(), err)
		}
	}
}

func tryLock(f *os.File, mode int) (taken bool, err error) {
	for {
		err := syscall.Flock(int(f.Fd()), mode|syscall.LOCK_NB)
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
