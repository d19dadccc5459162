package video

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockTimeout is how long an attempt waits for a lock that another holds for
// moments.
const lockTimeout = 5 * time.Minute

// lockDir waits for a directory's lock, which goes with the file that is
// returned, and with the process. On a file system without locks it returns at
// once: what they keep apart there are only attempts that overlap because one
// has lost its claim, and whose random names differ.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	return lockDirTimeout(ctx, dir, lockTimeout)
}

func lockDirTimeout(ctx context.Context, dir string, patience time.Duration) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	enough := time.NewTimer(patience)
	defer enough.Stop()
	for {
		if locked, err := tryLock(f); locked || err != nil {
			return f, nil
		}
		select {
		case <-tick.C:
			continue
		case <-enough.C:
			err = fmt.Errorf("another process has held the lock of %q for %v; is it stopped?", dir, patience)
		case <-ctx.Done():
			err = ctx.Err()
		}
		f.Close()
		return nil, err
	}
}

// tryLock takes the lock of an open file or directory, if nobody has it. It
// returns an error where there are no locks.
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

// unlock gives a lock back. Closing alone would not do at once: a child that is
// being started has the file, too, until it is the other program.
func unlock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	f.Close()
}
