//go:build unix

// Package flock locks open files and directories against other processes, and against
// other open files of this one. The kernel releases the locks of a killed process, so a
// lock is never stale. Call [Lock] or [TryLock]. Both return an error at once on a file
// system without locks.
package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// RetryInterval is the time between two tries for a lock. The kernel offers no wait for a
// lock that a context can interrupt.
const RetryInterval = 25 * time.Millisecond

// Mode says who else may hold a lock: it has many shared holders or one exclusive holder.
type Mode int

// The modes of a lock.
const (
	Shared    Mode = syscall.LOCK_SH
	Exclusive Mode = syscall.LOCK_EX
)

// Lock waits for the lock of an open file or directory. When ctx is done earlier, Lock
// returns the cause.
func Lock(ctx context.Context, f *os.File, mode Mode) error {
	for {
		if locked, err := TryLock(f, mode); locked || err != nil {
			return err
		}
		if err := ctxsleep.For(ctx, RetryInterval); err != nil {
			return fmt.Errorf("wait for the lock on %s: %w", f.Name(), err)
		}
	}
}

// TryLock takes the lock of an open file or directory unless another holder excludes that.
// A file that has a lock changes its mode.
func TryLock(f *os.File, mode Mode) (locked bool, err error) {
	for {
		err := syscall.Flock(int(f.Fd()), int(mode)|syscall.LOCK_NB)
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

// Unlock releases the lock and closes the file. Closing alone is not enough: a child
// process that is being started also has the file until it executes its program.
func Unlock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	f.Close()
}
