package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const (
	automaticInterval = 5 * time.Second // between two looks for requests
	automaticLease    = time.Minute     // of a claim that is not extended
	automaticPause    = time.Minute     // after the first failure, and four times as long after each further one
)

// requestAutomaticCaptions makes the publish stage request what the params ask for. It does so first: an attempt whose outcome is
// not recorded is repeated, so no request is lost.
func requestAutomaticCaptions(s stages.Stage, st *store.Store) stages.Stage {
	work := s.Work
	s.Work = func(ctx context.Context, job *stages.Job) (any, error) {
		if p, err := video.ParseParams(job.Params); err == nil && p.AutomaticCaptions != "" && p.Encryption == "" { // ingest says what is wrong
			if err := attached.New(st).RequestAutomatic(ctx, job.Task, p.AutomaticCaptions); err != nil {
				return nil, err
			}
		}
		return work(ctx, job)
	}
	return s
}

// automaticCaptions makes captions of what is spoken in published videos, one video after the other.
type automaticCaptions struct {
	store  *store.Store
	config video.Config
	log    *zap.Logger
	lease  time.Duration // of a claim; a test has a shorter one
	busy   atomic.Bool
}

// run works until ctx ends. It begins when the tables are there.
func (a *automaticCaptions) run(ctx context.Context, workStarted <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-workStarted:
	}
	report := failureLogger(a.log, "automatic captions wait for the database", "automatic captions do not wait for the database any more")
	for ctx.Err() == nil {
		claim, ok, err := attached.New(a.store).ClaimAutomatic(ctx, a.lease)
		if ok {
			a.busy.Store(true)
			err = a.finish(ctx, claim, a.attempt(ctx, claim))
			a.busy.Store(false)
		}
		if ctx.Err() == nil {
			report(err)
		}
		if !ok || err != nil {
			_ = ctxsleep.For(ctx, automaticInterval)
		}
	}
}

// attempt makes the captions of a claim, which it extends meanwhile.
func (a *automaticCaptions) attempt(ctx context.Context, claim attached.AutomaticClaim) error {
	working, stop := context.WithCancelCause(ctx)
	var extending sync.WaitGroup
	extending.Go(func() {
		for ctxsleep.For(working, a.lease/4) == nil {
			err := attached.New(a.store).ScheduleAutomatic(working, claim, a.lease, "")
			if errors.Is(err, attached.ErrClaimLost) { // after another error, it may still be valid
				stop(err)
			}
		}
	})
	results := func(ctx context.Context, stage string) (json.RawMessage, error) {
		return a.store.Result(ctx, claim.Task, stage)
	}
	speech, err := a.config.RecognizeSpeech(working, claim.Task, claim.Spoken, results)
	stop(nil)
	extending.Wait()
	if err != nil {
		return err
	}
	return ops.AddAutomaticCaptions(ctx, a.store, claim, speech)
}

// finish logs how an attempt ended, and schedules the next one. An attempt that this process ends does not count.
func (a *automaticCaptions) finish(ctx context.Context, claim attached.AutomaticClaim, err error) error {
	log := a.log.With(zap.Stringer("task_id", claim.Task), zap.Int("attempt", claim.Attempt), zap.Error(err))
	wait := automaticPause << (2 * (claim.Attempt - 1))
	switch {
	case err == nil:
		log.Info("automatic captions completed")
		return nil
	case errors.Is(err, attached.ErrClaimLost):
		log.Warn("another process makes the automatic captions")
		return nil
	case ctx.Err() != nil:
		claim.Attempt, wait = claim.Attempt-1, 0
	case claim.Attempt == attached.MaxAutomaticAttempts:
		log.Error("automatic captions failed; they are tried again when the video is published again")
		wait = 0
	default:
		log.Warn("automatic captions failed", zap.Float64("retry_in_s", wait.Seconds()))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), automaticInterval)
	defer cancel()
	return attached.New(a.store).ScheduleAutomatic(ctx, claim, wait, err.Error())
}
