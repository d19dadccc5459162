package video

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockTimeout is how long an attempt waits for a lock that others hold briefly.
const lockTimeout = 5 * time.Minute

// lockDir waits for a directory's lock. Closing the returned file, or the end of the
// process, releases it. On a file system without locks it returns at once: the lock
// only separates attempts that overlap because one has lost its claim, and their
// random names differ.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	return lockDirTimeout(ctx, dir, lockTimeout)
}

func lockDirTimeout(ctx context.Context, dir string, timeout time.Duration) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	expired := time.NewTimer(timeout)
	defer expired.Stop()
	for {
		if locked, err := tryLock(f); locked || err != nil {
			return f, nil
		}
		select {
		case <-tick.C:
			continue
		case <-expired.C:
			err = fmt.Errorf("another process has held the lock of %q for %v; is it stopped?", dir, timeout)
		case <-ctx.Done():
			err = ctx.Err()
		}
		f.Close()
		return nil, err
	}
}

// tryLock takes the lock of an open file or directory if it is free. It returns an
// error if the file system has no locks.
func tryLock(f *os.File) (bool, error) {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		default:
			return err == nil, err
		}
	}
}

// unlock releases a lock. Closing is not enough: a child process that is being started
// also has the file until it executes its program.
func unlock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	f.Close()
}

// lockEntry opens a file or directory in dir and takes its lock. It returns nil if
// the lock is taken. supported is false if the file system has no locks.
func lockEntry(dir *os.Root, name string) (f *os.File, supported bool, err error) {
	f, err = dir.Open(name)
	if err != nil {
		return nil, false, err
	}
	locked, lockErr := tryLock(f)
	if lockErr == nil && !locked {
		f.Close()
		return nil, true, nil
	}
	return f, lockErr == nil, nil
}
