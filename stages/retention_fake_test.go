package stages_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// deletedBackend is a Backend with deleted tasks, of which a task is claimed once at a time, as in the database.
type deletedBackend struct {
	pruningBackend
	mu                   *sync.Mutex
	toUnpublish, toPurge []store.DeletedTask
	claimed              map[store.ID]bool
}

func newDeletedBackend(f *fakeBackend) *deletedBackend {
	return &deletedBackend{
		pruningBackend: pruningBackend{f, func(context.Context, store.PruneOptions) (store.PruneResult, error) {
			return store.PruneResult{}, nil
		}},
		mu: new(sync.Mutex), claimed: make(map[store.ID]bool),
	}
}

// claim takes up to 20 tasks.
func (d *deletedBackend) claim(from *[]store.DeletedTask) ([]store.DeletedTask, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var taken []store.DeletedTask
	*from = slices.DeleteFunc(*from, func(t store.DeletedTask) bool {
		if len(taken) == 20 || d.claimed[t.ID] {
			return false
		}
		d.claimed[t.ID] = true
		taken = append(taken, t)
		return true
	})
	return taken, nil
}

func (d *deletedBackend) release(task store.ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.claimed, task)
	return nil
}

func (d *deletedBackend) ClaimToUnpublish(context.Context) ([]store.DeletedTask, error) {
	return d.claim(&d.toUnpublish)
}

func (d *deletedBackend) ClaimToPurge(context.Context, time.Duration) ([]store.DeletedTask, error) {
	return d.claim(&d.toPurge)
}

func (d *deletedBackend) RecordUnpublished(_ context.Context, t store.DeletedTask) error {
	return d.release(t.ID)
}
func (d *deletedBackend) PostponeUnpublish(_ context.Context, t store.DeletedTask) error {
	return d.release(t.ID)
}
func (d *deletedBackend) Purge(_ context.Context, task store.ID, _ string) error {
	return d.release(task)
}

func (d *deletedBackend) delete(t store.DeletedTask, purge bool, wakes *fakeListener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.toUnpublish = append(d.toUnpublish, t)
	if purge {
		d.toPurge = append(d.toPurge, t)
	}
	wakes.Add("cuelight_test")
}

func TestRetention_UnpublishesAtOnceDuringALongPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, wakes := &fakeBackend{}, newFakeListener()
		b := newDeletedBackend(f)
		for n := range 300 { // as many as retention has deleted
			b.toPurge = append(b.toPurge, store.DeletedTask{ID: store.ID{1, byte(n >> 8), byte(n)}, Expired: true})
		}
		var deleted time.Time
		unpublished, purged := time.Duration(-1), 0
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Backend, r.Wakes = b, wakes
			r.Retention = &stages.Retention{
				Unpublish: func(context.Context, store.DeletedTask) error { unpublished = time.Since(deleted); return nil },
				RemoveFiles: func(context.Context, store.DeletedTask) error {
					time.Sleep(50 * time.Millisecond)
					purged++
					return nil
				},
			}
		})
		time.Sleep(time.Second)
		deleted = time.Now()
		b.delete(store.DeletedTask{ID: store.ID{2}}, false, wakes)
		time.Sleep(time.Minute)
		stop()
		if unpublished < 0 || unpublished > 10*time.Millisecond || purged != 300 {
			t.Errorf("unpublished %s after the deletion, and purged %d tasks, want at once and 300", unpublished, purged)
		}
	})
}

// The files of one task cannot be removed. Those of the others do not wait for the next interval.
func TestRetention_PurgesTheOthersWhereOneTaskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, wakes := &fakeBackend{}, newFakeListener()
		b := newDeletedBackend(f)
		for n := range 300 {
			b.toPurge = append(b.toPurge, store.DeletedTask{ID: store.ID{1, byte(n >> 8), byte(n)}, Expired: true})
		}
		broken, purged := b.toPurge[0].ID, 0
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Backend, r.Wakes = b, wakes
			r.Retention = &stages.Retention{RemoveFiles: func(_ context.Context, task store.DeletedTask) error {
				if task.ID == broken {
					return errors.New("the file is immutable")
				}
				purged++
				return nil
			}}
		})
		time.Sleep(time.Second)
		stop()
		if purged != 299 {
			t.Errorf("%d tasks were purged, want 299", purged)
		}
	})
}

// Neither of the two steps is to wait for the next interval because of the other's claim.
func TestRetention_PurgesATaskSoonAfterItUnpublishedIt(t *testing.T) {
	for name, failure := range map[string]error{"unpublished": nil, "not unpublished": errors.New("the disk is missing")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, wakes := &fakeBackend{}, newFakeListener()
				b := newDeletedBackend(f)
				var purged time.Time
				_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
					r.Backend, r.Wakes = b, wakes
					r.Retention = &stages.Retention{
						Unpublish:   func(context.Context, store.DeletedTask) error { time.Sleep(time.Second); return failure },
						RemoveFiles: func(context.Context, store.DeletedTask) error { purged = time.Now(); return nil },
					}
				})
				deleted := time.Now()
				b.delete(store.DeletedTask{ID: store.ID{2}}, true, wakes)
				time.Sleep(5 * time.Second)
				stop()
				if purged.IsZero() || purged.Sub(deleted) > 2*time.Second {
					t.Errorf("purged at %s after a deletion at %s", purged, deleted)
				}
			})
		})
	}
}

func TestRetention_PurgesPublishedTasksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBackend{}
		b := newDeletedBackend(f)
		now := time.Now()
		b.toPurge = []store.DeletedTask{
			{ID: store.ID{1}, Expired: true}, {ID: store.ID{2}, UnpublishedAt: &now},
			{ID: store.ID{3}}, {ID: store.ID{4}, KeepPublished: true},
		}
		var order []byte
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Backend = b
			r.Retention = &stages.Retention{RemoveFiles: func(_ context.Context, task store.DeletedTask) error {
				order = append(order, task.ID[0])
				return nil
			}}
		})
		time.Sleep(time.Second)
		stop()
		if !slices.Equal(order, []byte{3, 4, 1, 2}) {
			t.Errorf("purged in the order %v", order)
		}
	})
}
