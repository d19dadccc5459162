package stages_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestRetention_UnpublishesAtOnceAndPurgesLater(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "only", Work: func(context.Context, *stages.Job) (any, error) { return nil, nil }})
	done := make(chan string, 10)
	b.start(func(r *stages.Runner) {
		r.Wakes = b.listening()
		r.Retention = &stages.Retention{
			Unpublish:   func(_ context.Context, task store.DeletedTask) error { done <- "unpublish " + task.Source; return nil },
			RemoveFiles: func(_ context.Context, task store.DeletedTask) error { done <- "remove " + task.Source; return nil },
		}
	})
	first, second := b.submit(), b.submit()
	must(t, b.Delete(t.Context(), first, store.DeleteOptions{}))
	if got := <-done; got != "unpublish a" {
		t.Errorf("after the deletion: %s", got)
	}
	must(t, b.Delete(t.Context(), second, store.DeleteOptions{KeepPublished: true, Purge: true}))
	if got := <-done; got != "remove a" {
		t.Errorf("after a deletion for good: %s", got)
	}
	waittest.Until(t, "the task is purged", func() bool {
		_, err := b.GetDeleted(t.Context(), second)
		return errors.Is(err, store.ErrNotFound)
	})
	if _, err := b.GetDeleted(t.Context(), first); err != nil {
		t.Errorf("the first task is kept: %v", err)
	}
}

func TestRetention_GoesOnAfterAnErrorAboutOneTask(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "only", Work: func(context.Context, *stages.Job) (any, error) { return nil, nil }})
	bad, good := b.submit(), b.submit()
	for _, id := range []store.ID{bad, good} {
		must(t, b.Delete(t.Context(), id, store.DeleteOptions{}))
	}
	var tries atomic.Int32
	r := b.start(func(r *stages.Runner) {
		r.Retention = &stages.Retention{Unpublish: func(_ context.Context, task store.DeletedTask) error {
			if task.ID == bad {
				tries.Add(1)
				return errors.New("the disk is missing")
			}
			return nil
		}}
	})
	if e := r.wait(t, stages.TaskUnpublished); e.Task != good {
		t.Errorf("unpublished %s, want %s", e.Task, good)
	}
	if e := r.wait(t, stages.RemovalFailed); e.Err == nil || tries.Load() != 1 {
		t.Errorf("after %d tries: %v", tries.Load(), e.Err)
	}
	must(t, b.Undelete(t.Context(), bad, "")) // its claim has ended
}

func TestRunner_WithoutRetentionKeepsDeletedTasks(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "only", Work: func(context.Context, *stages.Job) (any, error) { return nil, nil }})
	id := b.submit()
	must(t, b.Delete(t.Context(), id, store.DeleteOptions{Purge: true}))
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	b.submit()
	r.wait(t, stages.StageCompleted)
	r.stop()
	if d, err := b.GetDeleted(t.Context(), id); err != nil || d.PurgingAt != nil {
		t.Errorf("the deleted task is %+v, %v", d, err)
	}
}
