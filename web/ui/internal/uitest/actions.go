package uitest

import (
	"context"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// Actions are the ones of a dashboard, done by a Store.
type Actions struct{ *store.Store }

// Submit and the others are those of ui.Actions.
func (a Actions) Submit(ctx context.Context, s store.Submission) (store.ID, error) {
	r, err := a.Store.Submit(ctx, s)
	return r.ID, err
}

// Override puts one task in the place of one.
func (a Actions) Override(ctx context.Context, old store.ID, by store.Submission) (store.ID, error) {
	r, err := a.Store.Override(ctx, []store.ID{old}, by)
	return r.ID, err
}

// Resume is the Store's; what is not paused is not found.
func (a Actions) Resume(ctx context.Context, p store.Pause) error {
	was, err := a.Store.Resume(ctx, p)
	if err == nil && !was {
		err = store.ErrNotFound
	}
	return err
}

// RetryDead retries the dead tasks that match.
func (a Actions) RetryDead(ctx context.Context, f report.DeadFilter, o store.RetryAllOptions) (store.RetryAllResult, error) {
	tasks, err := report.New(a.DB(), a.Graph()).FindDead(ctx, f)
	if err != nil {
		return store.RetryAllResult{}, err
	}
	return a.Store.RetryDead(ctx, tasks, o)
}
