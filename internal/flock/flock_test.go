package flock_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/cuelight/cuelight/internal/flock"
)

func TestLock_WaitsUntilItsContextEndsOrTheHolderUnlocks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *os.File {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	holder, waiter := open(), open()
	if err := flock.Lock(t.Context(), holder, flock.Exclusive); err != nil {
		t.Fatal(err)
	}
	if locked, err := flock.TryLock(waiter, flock.Shared); locked || err != nil {
		t.Errorf("a second holder: %t, %v", locked, err)
	}
	cause := errors.New("shutdown")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := flock.Lock(ctx, waiter, flock.Shared); !errors.Is(err, cause) {
		t.Errorf("error %v; want the cause of the cancellation", err)
	}
	flock.Unlock(holder)
	if err := flock.Lock(t.Context(), waiter, flock.Shared); err != nil {
		t.Error(err)
	}
	if locked, err := flock.TryLock(open(), flock.Shared); !locked || err != nil {
		t.Errorf("a second shared holder: %t, %v", locked, err)
	}
}
