package stages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

// attempt is one claim being worked on.
type attempt struct {
	claim  store.Claim
	stage  *Stage
	cancel context.CancelCauseFunc
	began  time.Time

	mu       sync.Mutex
	progress Progress
	moved    bool // progress was made since it was last written down
}

// finished is an attempt that ended, and what is to be reported of it.
type finished struct {
	*attempt
	report  store.Report
	kind    Kind
	err     error
	took    time.Duration
	dropped bool      // the claim is somebody else's: nothing to report
	next    time.Time // the row was locked by somebody: not to be reported before
	tries   int
}

// work runs one attempt to its end. It never panics, and says what became of
// the attempt whatever the stage did.
func (a *attempt) work(ctx context.Context, job *Job) finished {
	cancel := context.CancelFunc(func() {})
	if a.stage.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, a.stage.Timeout, ErrTimeout)
	}
	defer cancel()
	result, err := call(ctx, a.stage.Work, job)
	var raw json.RawMessage
	if err == nil {
		raw, err = encodeResult(result)
	}
	f := a.conclude(raw, err, context.Cause(ctx))
	f.took = time.Since(a.began)
	return f
}

// call keeps a panic in a stage from being more than a failed attempt.
func call(ctx context.Context, work Work, job *Job) (result any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return work(ctx, job)
}

// encodeResult makes the JSON that is kept. PostgreSQL's jsonb cannot hold a
// NUL, and no further attempt would change that.
func encodeResult(result any) (json.RawMessage, error) {
	if result == nil {
		return nil, nil
	}
	raw, err := json.Marshal(result)
	if err == nil && bytes.Contains(raw, []byte(`\u0000`)) {
		err = errors.New(`it holds \u0000`)
	}
	if err != nil {
		return nil, Permanent(fmt.Errorf("keep result: %w", err))
	}
	return raw, nil
}

// conclude decides what became of an attempt: why is the cause of its
// context's end, if it ended.
func (a *attempt) conclude(result json.RawMessage, err, why error) finished {
	f := finished{attempt: a, err: err, report: store.Report{Task: a.claim.Task, Stage: a.claim.Stage, Token: a.claim.Token}}
	switch {
	case errors.Is(why, errRevoked):
		f.kind, f.dropped, f.err = Revoked, true, why
	case err == nil:
		f.kind, f.report.Outcome, f.report.Result = Completed, store.Completed, result
	case errors.Is(why, ErrDraining), errors.Is(why, ErrLeaseLost):
		f.kind, f.report.Outcome, f.err = Released, store.Released, why
	default:
		a.fail(&f, err, why)
	}
	return f
}

func (a *attempt) fail(f *finished, err, why error) {
	if errors.Is(why, ErrTimeout) {
		err = fmt.Errorf("%w after %s: %w", ErrTimeout, a.stage.Timeout, err)
		f.err = err
	}
	f.kind, f.report.Outcome = Failed, store.Failed
	f.err, f.report.Error, f.report.Class = err, err.Error(), class(err)
	if IsPermanent(err) || a.claim.Attempt >= a.stage.MaxAttempts {
		f.kind, f.report.Dead = Dead, true
		return
	}
	f.report.RetryIn = jitter(a.stage.Backoff.after(a.claim.Attempt))
	if delay, ok := RetryDelay(err); ok {
		f.report.RetryIn = delay
	}
}

// class is the word for an error in the history.
func class(err error) string {
	var panicked *panicError
	_, later := RetryDelay(err)
	switch {
	case errors.As(err, &panicked):
		return "panic"
	case errors.Is(err, ErrTimeout):
		return "timeout"
	case IsPermanent(err):
		return "permanent"
	case later:
		return "retry_after"
	}
	return "error"
}

// note keeps the latest progress, for the heartbeat to write down.
func (a *attempt) note(p Progress) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress, a.moved = p, true
}

// clean makes of what a stage said something that can be written down.
func (p Progress) clean() Progress {
	const noteAtMost = 200
	if math.IsNaN(p.Percent) {
		p.Percent = -1
	}
	p.Percent = min(max(p.Percent, -1), 100)
	if math.IsNaN(p.Speed) || math.IsInf(p.Speed, 0) || p.Speed < 0 {
		p.Speed = 0
	}
	p.ETA = max(p.ETA, 0)
	p.Note = strings.ReplaceAll(strings.ToValidUTF8(p.Note, "\uFFFD"), "\x00", "\uFFFD")
	if len(p.Note) > noteAtMost {
		p.Note = strings.ToValidUTF8(p.Note[:noteAtMost], "")
	}
	return p
}

// running describes the attempt for others to see, and whether that changed
// since the last time.
func (a *attempt) running() (store.Running, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	moved := a.moved
	a.moved = false
	return store.Running{
		Task: a.claim.Task, Stage: a.stage.Name, Token: a.claim.Token, Attempt: a.claim.Attempt,
		Percent: a.progress.Percent, Speed: a.progress.Speed, ETA: a.progress.ETA.Seconds(), Note: a.progress.Note,
	}, moved
}
