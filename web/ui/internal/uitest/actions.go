package uitest

import (
	"context"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// Actions implements ui.Actions with a Store.
type Actions struct{ *store.Store }

// Submit adds a task.
func (a Actions) Submit(ctx context.Context, s store.Submission) (store.ID, error) {
	r, err := a.Store.Submit(ctx, s)
	return r.ID, err
}

// Override replaces a task.
func (a Actions) Override(ctx context.Context, old store.ID, by store.Submission) (store.ID, error) {
	r, err := a.Store.Override(ctx, []store.ID{old}, by)
	return r.ID, err
}

// Resume removes a pause. It returns store.ErrNotFound if there is none.
func (a Actions) Resume(ctx context.Context, p store.Pause) error {
	existed, err := a.Store.Resume(ctx, p)
	if err == nil && !existed {
		err = store.ErrNotFound
	}
	return err
}

// RetryDead retries the dead tasks that match.
func (a Actions) RetryDead(
	ctx context.Context, f report.DeadFilter, o store.RetryAllOptions,
) (store.RetryAllResult, error) {
	tasks, err := report.New(a.DB(), a.Graph()).FindDead(ctx, f)
	if err != nil {
		return store.RetryAllResult{}, err
	}
	return a.Store.RetryDead(ctx, tasks, o)
}
