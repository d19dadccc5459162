package stages_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestPostponedAttemptDoesNotCountAndWaits(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	b := setup(t, stages.Stage{Name: "one", MaxAttempts: 1, Work: func(context.Context, *stages.Job) (any, error) {
		if mended.Load() {
			return nil, nil
		}
		return nil, stages.Postpone(200*time.Millisecond, errors.New("the disk is full"))
	}})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	for range 3 {
		began := time.Now()
		if e := r.wait(t, stages.Released); e.RetryIn < 160*time.Millisecond || e.Err == nil {
			t.Errorf("it waits for %s: %v", e.RetryIn, e.Err)
		}
		r.wait(t, stages.Started)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the next attempt began after %s", took)
		}
	}
	mended.Store(true)
	if e := r.wait(t, stages.Completed); e.Attempt != 1 {
		t.Errorf("it was attempt %d", e.Attempt)
	}
	h := b.history(id)
	if len(h) < 4 || h[0].Outcome != "released" || h[0].Error != "the disk is full" || h[0].Class != "postponed" || h[0].RetryAt == nil {
		t.Errorf("history is %+v", h)
	}
}

func TestOutermostMarkOfAnErrorCounts(t *testing.T) {
	t.Parallel()
	base := errors.New("no luck")
	for _, c := range []struct {
		err       error
		postponed bool
		after     time.Duration
	}{
		{stages.Postpone(time.Minute, stages.RetryAfter(time.Hour, base)), true, time.Minute},
		{stages.RetryAfter(time.Hour, stages.Postpone(time.Minute, base)), false, time.Hour},
		{stages.Postpone(-1, base), true, 0},
	} {
		after, ok := stages.RetryDelay(c.err)
		if !ok || after != c.after || stages.IsPostponed(c.err) != c.postponed || !errors.Is(c.err, base) {
			t.Errorf("postponed %t, after %s, %t", stages.IsPostponed(c.err), after, ok)
		}
	}
	if stages.Postpone(time.Minute, nil) != nil || stages.IsPostponed(base) {
		t.Error("nil or an unmarked error is postponed")
	}
}

func TestClaimCanBeConfirmedBeforeWhatCannotBeTakenBack(t *testing.T) {
	t.Parallel()
	asked, taken := make(chan struct{}), make(chan struct{})
	b := setup(t, stages.Stage{Name: "one", Work: func(ctx context.Context, j *stages.Job) (any, error) {
		if err := j.Confirm(ctx); err != nil {
			t.Errorf("the claim holds, but: %v", err)
		}
		close(asked)
		<-taken
		err := j.Confirm(context.WithoutCancel(ctx))
		if !errors.Is(err, stages.ErrLeaseLost) || !errors.Is(context.Cause(ctx), stages.ErrLeaseLost) {
			t.Errorf("of a claim that was taken it is said: %v, and its context ends with %v", err, context.Cause(ctx))
		}
		return nil, err
	}})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Lease = 24 * time.Hour })
	<-asked
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	close(taken)
	r.wait(t, stages.Revoked)
	if err := (&stages.Job{}).Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	if s := b.task(id).Status; s != store.StatusCancelled {
		t.Errorf("task is %s", s)
	}
}
