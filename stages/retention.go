package stages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
)

// Retention says what a Runner deletes, and what it does with deleted tasks. Several processes may do so at once; for each
// setting the shortest counts. The functions must be repeatable: after an error, a crash, or store.RemovalTime they are
// called again for the same task.
type Retention struct {
	// KeepFinished and KeepDead are how long completed and cancelled tasks, and dead tasks, are kept after they ended; see
	// [store.PruneOptions]. Default 0: for ever. With RemoveFiles they become deleted tasks that are purged at once, except
	// for what is published, which stays.
	KeepFinished, KeepDead time.Duration

	// KeepWorkers is how long stopped and lost workers are kept. Default 90 days; negative for ever.
	KeepWorkers time.Duration

	// PruneOthers deletes old rows of other tables of the program, and returns how many. It is called as often as the Runner
	// deletes old rows. Default: there are none.
	PruneOthers func(ctx context.Context) (int, error)

	// KeepDeleted is how long a deleted task can be restored, unless it is purged at once; see
	// [store.DeleteOptions]. Default 30 days; negative for ever.
	KeepDeleted time.Duration

	// Unpublish removes all that the stages have published of a task. It is called soon after the
	// task was deleted, and again a minute later, unless that is to stay until the task is purged. Default: nothing is published.
	Unpublish func(ctx context.Context, task store.DeletedTask) error

	// RemoveFiles removes all that the stages have made of a task, published or not, before its rows are
	// deleted. Of a task that is Expired, it leaves what is published. Default: there is nothing.
	RemoveFiles func(ctx context.Context, task store.DeletedTask) error

	// RememberPrefix is the prefix of request ids that stay known after a purge, to [store.Store.DeletedRequests].
	// Default: none.
	RememberPrefix string

	prune store.PruneOptions
}

// The defaults of Retention.
const (
	defaultKeepDeleted = 30 * 24 * time.Hour
	defaultKeepWorkers = 90 * 24 * time.Hour
)

// remover is the part of a housekeeper that deletes old rows, and removes deleted tasks.
type remover interface {
	Prune(ctx context.Context, o store.PruneOptions) (store.PruneResult, error)
	ClaimToUnpublish(ctx context.Context) ([]store.DeletedTask, error)
	RecordUnpublished(ctx context.Context, task store.DeletedTask) error
	PostponeUnpublish(ctx context.Context, task store.DeletedTask) error
	ClaimToPurge(ctx context.Context, keep time.Duration) ([]store.DeletedTask, error)
	Purge(ctx context.Context, task store.ID, remember string) error
}

// retention removes deleted tasks.
type retention struct {
	*process
	Retention
	remover
}

func (r *Runner) prepareRetention() error {
	if r.Retention == nil {
		return nil
	}
	if _, ok := r.Backend.(housekeeper); !ok {
		return errors.New("a Retention needs a Pool")
	}
	o := *r.Retention
	o.KeepDeleted = cmp.Or(o.KeepDeleted, defaultKeepDeleted)
	o.prune = store.PruneOptions{
		Finished: o.KeepFinished, Dead: o.KeepDead,
		Workers:  cmp.Or(o.KeepWorkers, defaultKeepWorkers),
		HasFiles: o.RemoveFiles != nil || o.RememberPrefix != "",
	}
	o.Unpublish, o.RemoveFiles = recovering(o.Unpublish), recovering(o.RemoveFiles)
	r.Retention = &o
	return nil
}

// recovering returns a function that removes files, or does nothing for nil. A panic is an error.
func recovering(remove func(context.Context, store.DeletedTask) error) func(context.Context, store.DeletedTask) error {
	return func(ctx context.Context, task store.DeletedTask) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = &panicError{v, debug.Stack()}
			}
		}()
		if remove == nil {
			return nil
		}
		return remove(ctx, task)
	}
}

func (p *process) retention() *retention {
	return &retention{process: p, Retention: *p.Retention, remover: p.housekeeper}
}

// unpublishDeleted removes the published files of deleted tasks. It does not wait for purgeDeleted, which may have
// thousands of tasks to purge.
func (p *process) unpublishDeleted(ctx context.Context) {
	if p.Retention == nil {
		return
	}
	r := p.retention()
	r.whenDue(ctx, p.deleted, func() error {
		defer signal(p.toPurge, true) // a task is not purged while it is claimed here
		return r.forEach(ctx, r.ClaimToUnpublish, r.unpublish)
	})
}

// purgeDeleted removes the other files of deleted tasks, and their rows.
func (p *process) purgeDeleted(ctx context.Context) {
	if p.Retention == nil {
		return
	}
	r := p.retention()
	r.whenDue(ctx, p.toPurge, func() error { return r.forEach(ctx, r.claimToPurge, r.purge) })
}

// claimToPurge puts tasks first that are still published.
func (r *retention) claimToPurge(ctx context.Context) ([]store.DeletedTask, error) {
	tasks, err := r.ClaimToPurge(ctx, r.KeepDeleted)
	isRemoved := func(t store.DeletedTask) int {
		if t.Expired || t.UnpublishedAt != nil {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(tasks, func(a, b store.DeletedTask) int { return isRemoved(a) - isRemoved(b) })
	return tasks, err
}

// whenDue calls remove, which removes all that is due or as much as it can before an error, when it is notified, and
// at intervals.
func (r *retention) whenDue(ctx context.Context, notified <-chan struct{}, remove func() error) {
	for failed := false; ; {
		err := remove()
		if err != nil && !failed && ctx.Err() == nil {
			r.observe(Event{Kind: RemovalFailed, Err: err})
		}
		failed = err != nil
		waiting, cancel := context.WithTimeout(ctx, jitter(pruneInterval))
		select {
		case <-notified:
		case <-waiting.Done():
		}
		cancel()
		// Notifications must not make a failing run follow the other at once.
		if ctx.Err() != nil || failed && ctxsleep.For(ctx, time.Second) != nil {
			return
		}
	}
}

// forEach calls do for each task that claim returns, until it returns none, or all of those fail: then the host has a
// problem. It returns the first error. A failed task is claimed again later.
func (r *retention) forEach(
	ctx context.Context, claim func(context.Context) ([]store.DeletedTask, error),
	do func(context.Context, store.DeletedTask) error,
) (first error) {
	for {
		claiming, cancel := context.WithTimeout(ctx, exchangeTimeout)
		tasks, err := claim(claiming)
		cancel()
		if err != nil || len(tasks) == 0 {
			return cmp.Or(first, err)
		}
		within, cancel := context.WithTimeout(ctx, store.RemovalTime*9/10) // then another process may continue
		failed := 0
		for _, t := range tasks {
			if err := do(within, t); err != nil {
				failed++
				first = cmp.Or(first, fmt.Errorf("task %s: %w", t.ID, err))
			}
		}
		cancel()
		if failed == len(tasks) {
			return first
		}
	}
}

func (r *retention) unpublish(ctx context.Context, t store.DeletedTask) error {
	err := r.Unpublish(ctx, t)
	if err != nil {
		postponing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		return errors.Join(err, r.PostponeUnpublish(postponing, t))
	}
	err = r.RecordUnpublished(ctx, t)
	if err == nil && t.UnpublishedAt == nil {
		r.observe(Event{Kind: TaskUnpublished, Task: t.ID})
	}
	return err
}

func (r *retention) purge(ctx context.Context, t store.DeletedTask) error {
	err := r.RemoveFiles(ctx, t)
	if err == nil {
		err = r.remover.Purge(ctx, t.ID, r.RememberPrefix)
	}
	if err == nil {
		signal(r.wrote, true)
		r.observe(Event{Kind: TaskPurged, Task: t.ID})
	}
	return err
}
