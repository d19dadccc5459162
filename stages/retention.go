package stages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// Retention says what a Runner deletes, and what it does with deleted tasks. Several processes may do so at once; for each
// setting the shortest counts. The functions must be repeatable: after an error, a crash, or engine.RemovalTime they are
// called again for the same task.
type Retention struct {
	// KeepFinished and KeepDead are how long completed and cancelled tasks, and dead tasks, are kept after they ended; see
	// [store.PruneOptions]. Default 0: for ever. With RemoveFiles they become deleted tasks that are purged at once, except
	// for what is published, which stays.
	KeepFinished, KeepDead time.Duration

	// KeepWorkers is how long stopped and lost workers are kept. Default 90 days; negative for ever.
	KeepWorkers time.Duration

	// KeepAudit is how long entries of the audit log are kept. Default two years; negative for ever.
	KeepAudit time.Duration

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
	defaultKeepAudit   = 2 * 365 * 24 * time.Hour
)

// remover is the part of a Backend that deletes old rows, and removes deleted tasks. Only that of a Runner with a Pool
// has it.
type remover interface {
	Prune(ctx context.Context, o store.PruneOptions) (store.PruneResult, error)
	ClaimToUnpublish(ctx context.Context) ([]store.DeletedTask, error)
	RecordUnpublished(ctx context.Context, task store.DeletedTask) error
	PostponeUnpublish(ctx context.Context, task store.DeletedTask) error
	ClaimToPurge(ctx context.Context, keep time.Duration) ([]store.DeletedTask, error)
	Purge(ctx context.Context, task store.ID, remember string) error
}

var _ remover = database{}

// retention removes deleted tasks. Its goroutine owns all fields.
type retention struct {
	*process
	Retention
	remover
	failed bool // the last run
}

func (r *Runner) prepareRetention() error {
	if r.Retention == nil {
		return nil
	}
	if _, ok := r.Backend.(remover); !ok {
		return errors.New("a Retention needs a Pool")
	}
	o := *r.Retention
	o.KeepDeleted = cmp.Or(o.KeepDeleted, defaultKeepDeleted)
	o.prune = store.PruneOptions{
		Finished: o.KeepFinished, Dead: o.KeepDead,
		Workers: cmp.Or(o.KeepWorkers, defaultKeepWorkers), Audit: cmp.Or(o.KeepAudit, defaultKeepAudit),
		HasFiles: o.RemoveFiles != nil || o.RememberPrefix != "",
	}
	nothing := func(context.Context, store.DeletedTask) error { return nil }
	if o.Unpublish == nil {
		o.Unpublish = nothing
	}
	if o.RemoveFiles == nil {
		o.RemoveFiles = nothing
	}
	r.Retention = &o
	return nil
}

// removeDeleted removes deleted tasks when it is notified, and at intervals.
func (p *process) removeDeleted(ctx context.Context) {
	if p.Retention == nil {
		return
	}
	r := &retention{process: p, Retention: *p.Retention, remover: p.Backend.(remover)}
	for {
		err := r.run(ctx)
		if err != nil && !r.failed && ctx.Err() == nil {
			p.observe(Event{Kind: RemovalFailed, Err: err})
		}
		r.failed = err != nil
		waiting, cancel := context.WithTimeout(ctx, jitter(pruneInterval))
		select {
		case <-p.deleted:
		case <-waiting.Done():
		}
		cancel()
		// Notifications must not make a failing run follow the other at once.
		if ctx.Err() != nil || r.failed && ctxsleep.For(ctx, time.Second) != nil {
			return
		}
	}
}

// run removes all that is due, or as much as it can before an error.
func (r *retention) run(ctx context.Context) error {
	unpublished := r.forEach(ctx, r.ClaimToUnpublish, r.unpublish)
	purged := r.forEach(ctx, func(ctx context.Context) ([]store.DeletedTask, error) {
		return r.ClaimToPurge(ctx, r.KeepDeleted)
	}, r.purge)
	return errors.Join(unpublished, purged)
}

// forEach calls do for each task that claim returns, until it returns none, or one of them fails. A failed task is
// claimed later than others.
func (r *retention) forEach(
	ctx context.Context, claim func(context.Context) ([]store.DeletedTask, error),
	do func(context.Context, store.DeletedTask) error,
) error {
	for {
		claiming, cancel := context.WithTimeout(ctx, exchangeTimeout)
		tasks, err := claim(claiming)
		cancel()
		if err != nil || len(tasks) == 0 {
			return err
		}
		within, cancel := context.WithTimeout(ctx, engine.RemovalTime*9/10) // then another process may continue
		for _, t := range tasks {
			if failed := do(within, t); failed != nil && err == nil {
				err = fmt.Errorf("task %s: %w", t.ID, failed)
			}
		}
		cancel()
		if err != nil {
			return err
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
