package stages_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestPostpone_WaitsAndCountsNoAttempt(t *testing.T) {
	t.Parallel()
	var fixed atomic.Bool
	b := setup(t, stages.Stage{Name: "one", MaxAttempts: 1, Work: func(context.Context, *stages.Job) (any, error) {
		if fixed.Load() {
			return nil, nil
		}
		return nil, stages.Postpone(200*time.Millisecond, errors.New("the disk is full"))
	}})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	for range 3 {
		start := time.Now()
		if e := r.wait(t, stages.ClaimReleased); e.RetryIn < 160*time.Millisecond || e.Err == nil {
			t.Errorf("it is retried after %s: %v", e.RetryIn, e.Err)
		}
		r.wait(t, stages.StageStarted)
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("the next attempt started after %s", took)
		}
	}
	fixed.Store(true)
	if e := r.wait(t, stages.StageCompleted); e.Attempt != 1 {
		t.Errorf("it was attempt %d", e.Attempt)
	}
	h := b.history(id)
	if len(h) < 4 || h[0].Outcome != "released" || h[0].Error != "the disk is full" || h[0].Class != "postponed" ||
		h[0].RetryAt == nil {
		t.Errorf("history is %+v", h)
	}
}

func TestPostpone_OutermostWrapperDecides(t *testing.T) {
	t.Parallel()
	base := errors.New("work failed")
	for _, c := range []struct {
		err       error
		postponed bool
		suspends  bool
		after     time.Duration
	}{
		{stages.Postpone(time.Minute, stages.RetryAfter(time.Hour, base)), true, true, time.Minute},
		{stages.RetryAfter(time.Hour, stages.Postpone(time.Minute, base)), false, false, time.Hour},
		{stages.PostponeTask(time.Minute, stages.Postpone(time.Hour, base)), true, false, time.Minute},
		{stages.Postpone(time.Minute, stages.PostponeTask(time.Hour, base)), true, true, time.Minute},
		{stages.PostponeUntilIdle(time.Minute, base), true, true, time.Minute},
		{stages.Postpone(-1, base), true, true, 0},
	} {
		after, ok := stages.RetryDelay(c.err)
		if !ok || after != c.after || stages.IsPostponed(c.err) != c.postponed ||
			stages.SuspendsStage(c.err) != c.suspends || !errors.Is(c.err, base) {
			t.Errorf("postponed %t, after %s, %t", stages.IsPostponed(c.err), after, ok)
		}
	}
	if stages.Postpone(time.Minute, nil) != nil || stages.PostponeTask(time.Minute, nil) != nil ||
		stages.PostponeUntilIdle(time.Minute, nil) != nil ||
		stages.IsPostponed(base) {
		t.Error("nil or an unmarked error is postponed")
	}
}

func TestConfirm_FailsForACancelledTask(t *testing.T) {
	t.Parallel()
	confirmed, cancelled := make(chan struct{}), make(chan struct{})
	b := setup(t, stages.Stage{Name: "one", Work: func(ctx context.Context, j *stages.Job) (any, error) {
		if err := j.Confirm(ctx); err != nil {
			t.Errorf("the claim is held, but Confirm returned %v", err)
		}
		close(confirmed)
		<-cancelled
		err := j.Confirm(context.WithoutCancel(ctx))
		if !errors.Is(err, stages.ErrCancelled) || !errors.Is(context.Cause(ctx), stages.ErrCancelled) {
			t.Errorf("after the cancel Confirm returned %v, and the context's cause is %v", err, context.Cause(ctx))
		}
		return nil, err
	}})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Lease = 24 * time.Hour })
	<-confirmed
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	close(cancelled)
	r.wait(t, stages.ClaimRevoked)
	if err := (&stages.Job{}).Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	if s := b.task(id).Status; s != store.StatusCancelled {
		t.Errorf("task is %s", s)
	}
}

// endlessTasks is a backend that always has more tasks to claim.
func endlessTasks() *fakeBackend {
	next := func() (id store.ID) {
		_, _ = rand.Read(id[:])
		return id
	}
	return &fakeBackend{exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
		out := engine.ExchangeResult{
			MoreReady: []bool{true}, Claimed: []int{in.FreeSlots[0]}, Next: make([]engine.Position, 1), Wait: noWait(1), NextDue: -1,
		}
		if !in.ClaimFrom[0] {
			return out, nil
		}
		for range in.FreeSlots[0] {
			out.Claims = append(out.Claims, engine.Claim{Task: next(), Token: next(), Attempt: 1})
		}
		return out, nil
	}}
}

func TestPostpone_SuspendsTheStageUntilATrySucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wakes := notify.NewWakes()
		var full atomic.Bool
		var started atomic.Int64
		full.Store(true)
		p := pipeline(t, func(context.Context, *stages.Job) (any, error) {
			started.Add(1)
			if full.Load() {
				return nil, stages.Postpone(5*time.Minute, errors.New("the disk is full"))
			}
			time.Sleep(time.Second)
			return nil, nil
		}, "one")
		events, stop := runFake(t, endlessTasks(), p, func(r *stages.Runner) { r.Wakes = wakes })
		wakes.Add(p.Graph().Channel("one"))
		time.Sleep(time.Hour)
		tries := started.Load()
		if tries < 25 || tries > 50 {
			t.Errorf("%d attempts started in an hour of a full disk; want about 40", tries)
		}
		full.Store(false)
		time.Sleep(10 * time.Minute)
		if done := started.Load() - tries; done < 240 {
			t.Errorf("%d attempts started in the ten minutes after that; want hundreds", done)
		}
		stop()
		count := make(map[stages.Kind]int)
		for _, kind := range events() {
			count[kind]++
		}
		if count[stages.StageSuspended] != 1 || count[stages.StageResumed] != 1 {
			t.Errorf("%d times suspended, %d times resumed; want one each", count[stages.StageSuspended],
				count[stages.StageResumed])
		}
	})
}

func TestPostponeTask_SuspendsNoStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wakes := notify.NewWakes()
		var started atomic.Int64
		p := pipeline(t, func(context.Context, *stages.Job) (any, error) {
			if started.Add(1)%2 == 0 {
				return nil, stages.PostponeTask(5*time.Minute, errors.New("the file is too large for the disk"))
			}
			time.Sleep(time.Second)
			return nil, nil
		}, "one")
		events, stop := runFake(t, endlessTasks(), p, func(r *stages.Runner) { r.Wakes = wakes })
		wakes.Add(p.Graph().Channel("one"))
		time.Sleep(10 * time.Minute)
		stop()
		count := make(map[stages.Kind]int)
		for _, kind := range events() {
			count[kind]++
		}
		if count[stages.StageSuspended] != 0 || count[stages.StageCompleted] < 240 || count[stages.ClaimReleased] < 240 {
			t.Errorf("%d times suspended, %d completed, %d released; want 0, and hundreds of both others",
				count[stages.StageSuspended], count[stages.StageCompleted], count[stages.ClaimReleased])
		}
	})
}
