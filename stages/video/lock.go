package video

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/cuelight/cuelight/internal/flock"
)

// lockTimeout is how long an attempt waits for a lock that others hold briefly.
const lockTimeout = 5 * time.Minute

// lockDir waits for a directory's lock, which [flock.Unlock] releases. On a file system
// without locks it returns at once: the lock only separates attempts that overlap
// because one has lost its claim, and their random names differ.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	return lockDirTimeout(ctx, dir, lockTimeout)
}

func lockDirTimeout(ctx context.Context, dir string, timeout time.Duration) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout,
		fmt.Errorf("another process has held the lock of %q for %v; is it stopped?", dir, timeout))
	defer cancel()
	if err := flock.Lock(ctx, f, flock.Exclusive); err != nil && ctx.Err() != nil {
		f.Close()
		return nil, context.Cause(ctx)
	}
	return f, nil
}

// lockEntry opens a file or directory in dir and takes its lock. It returns nil if
// the lock is taken. supported is false if the file system has no locks.
func lockEntry(dir *os.Root, name string) (f *os.File, supported bool, err error) {
	f, err = dir.Open(name)
	if err != nil {
		return nil, false, err
	}
	locked, lockErr := flock.TryLock(f, flock.Exclusive)
	if lockErr == nil && !locked {
		f.Close()
		return nil, true, nil
	}
	return f, lockErr == nil, nil
}
