package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/cuelight/cuelight/store"
)

const largeFile = 20 << 20 // is sent in three pieces

// checks are all checks, in their order. Each begins with a worker that has just registered.
var checks = []struct {
	name string
	run  func(ctx context.Context, k *kit) error
}{
	{"good-path", checkGoodPath},
	{"late", checkLate},
	{"lost-lease", checkLostLease},
	{"cancel", checkCancel},
	{"cut-upload", checkCutUpload},
	{"drain", checkDrain},
}

// A task of some seconds with a file of three pieces, and heartbeats all the while.
func checkGoodPath(ctx context.Context, k *kit) error {
	_, err := k.submit(ctx, params{Seconds: 10, Bytes: largeFile}, store.StatusCompleted)
	if n := k.beats.Load(); err == nil && n < 3 {
		err = fmt.Errorf("expected: a heartbeat every 2 s during a task of 10 s; but there were %d", n)
	}
	return err
}

// The task is cancelled when the worker has reported that it is completed.
func checkLate(ctx context.Context, k *kit) error {
	_, err := k.submit(ctx, params{Seconds: 1, Bytes: 7, CancelLate: true}, store.StatusCancelled)
	if err != nil {
		return err
	}
	if _, err := k.submit(ctx, params{Bytes: 7}, store.StatusCompleted); err != nil {
		return fmt.Errorf("after a report of a lost claim: %w", err)
	}
	return nil
}

// The worker is expired while it works. It registers again and does the task again.
func checkLostLease(ctx context.Context, k *kit) error {
	// It takes longer than the sweep that ends the claims of the lost worker.
	task, err := k.submit(ctx, params{Seconds: 6, Bytes: 7}, store.StatusInProgress)
	if err != nil {
		return err
	}
	again := k.worker
	if _, err := k.engine.ExpireWorkers(ctx, []store.ID{again.ID}); err != nil {
		return err
	}
	if err := k.awaitRegistered(ctx, &again); err != nil {
		return fmt.Errorf("after worker-unknown: %w", err)
	}
	return k.awaitStatus(ctx, task, store.StatusCompleted, 2)
}

// A task of some minutes is cancelled. The worker's one slot is free soon.
func checkCancel(ctx context.Context, k *kit) error {
	task, err := k.submit(ctx, params{Seconds: 3 * limit.Seconds(), Bytes: 7}, store.StatusInProgress)
	if err == nil {
		err = k.store.Cancel(ctx, task)
	}
	if err != nil {
		return err
	}
	if _, err := k.submit(ctx, params{Bytes: 7}, store.StatusCompleted); err != nil {
		return fmt.Errorf("after a cancel: %w", err)
	}
	return nil
}

// Half of a piece arrives. The coordinator takes the file only from where it ends.
func checkCutUpload(ctx context.Context, k *kit) error {
	k.cutNext.Store(true)
	if _, err := k.submit(ctx, params{Bytes: largeFile}, store.StatusCompleted); err != nil {
		return err
	}
	if k.cutNext.Load() {
		return errors.New("expected: a file of 20 MiB is sent in pieces of at most 8 MiB; but there was one piece")
	}
	return nil
}

// A drained worker finishes its task, takes no other, deregisters, and ends.
func checkDrain(ctx context.Context, k *kit) error {
	task, err := k.submit(ctx, params{Seconds: 5, Bytes: 7}, store.StatusInProgress)
	if err == nil {
		err = k.store.DrainWorker(ctx, k.worker.ID)
	}
	if err != nil {
		return err
	}
	other, err := k.submit(ctx, params{Bytes: 7}, store.StatusPending)
	if err != nil {
		return err
	}
	end, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it runs on after %s", limit))
	defer cancel()
	if err := k.process.Wait(end); err != nil {
		return fmt.Errorf("expected: the worker ends with exit code 0 after a drain; but %w", err)
	}
	for id, want := range map[store.ID]store.Status{task: store.StatusCompleted, other: store.StatusPending} {
		if t, err := k.store.Get(ctx, id); err != nil || t.Stages[0].Status != want {
			return errors.Join(fmt.Errorf("expected after a drain: the running task is completed, and the next is pending; but a %s one is %s",
				want, t.Stages[0].Status), err)
		}
	}
	if live, err := k.store.WorkersOf(ctx, principal); err != nil || len(live) > 0 {
		return errors.Join(errors.New("expected: a drained worker deregisters; but it did not"), err)
	}
	return nil
}
