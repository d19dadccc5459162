package stages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// attempt is a claim of this process, running or prefetched.
type attempt struct {
	claim   engine.Claim
	stage   *Stage
	ctx     context.Context
	end     context.CancelCauseFunc // of ctx; see cancel
	overdue chan<- store.ID         // receives the token if Work ignores its cancel; never blocks

	// Owned by the dispatcher; Work's goroutine may read started.
	claimed  time.Time
	started  time.Time // zero while prefetched
	exchange int       // the dispatcher's count of exchanges when it started
	woken    bool      // claimed at the first exchange after a notification, while slots were free

	mu           sync.Mutex // guards the rest
	progress     Progress
	progressed   bool        // since the last heartbeat
	stallTimer   *time.Timer // cancels the attempt without progress; nil for never
	overdueTimer *time.Timer // runs since the attempt was cancelled
	ended        bool
}

// finished is an attempt that ended, and its report.
type finished struct {
	*attempt
	report    engine.Report
	kind      Kind
	err       error
	took      time.Duration
	revoked   bool        // the claim is lost: nothing to report
	suspends  *delayError // by [Postpone]: the error is this host's
	notBefore time.Time   // the row was locked, or files are being checked: when to report again
	tries     int
}

func newAttempt(base context.Context, c engine.Claim, stage *Stage, overdue chan<- store.ID) *attempt {
	a := &attempt{claim: c, stage: stage, overdue: overdue, claimed: time.Now()}
	a.ctx, a.end = context.WithCancelCause(base)
	return a
}

// begin starts the attempt's timers.
func (a *attempt) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.started = time.Now()
	if a.stage.Stall > 0 {
		a.stallTimer = time.AfterFunc(a.stage.Stall, func() { a.cancel(ErrStalled) })
	}
}

// run runs Work and sends the attempt to ended.
func (a *attempt) run(job *Job, ended chan<- finished) {
	var f finished
	// Deferred, so that the slot is freed even if Work ends its goroutine.
	defer func() {
		a.stopTimers()
		if f.attempt == nil {
			f = a.conclude(nil, nil, errGoexit, nil)
		}
		ended <- f
	}()
	ctx, cancel := a.ctx, context.CancelFunc(func() {})
	if a.stage.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, a.stage.Timeout, ErrTimeout)
		defer context.AfterFunc(ctx, func() { a.cancel(context.Cause(ctx)) })()
	}
	defer cancel()
	concluded := a.do(ctx, job)
	concluded.took = time.Since(a.started)
	f = concluded
}

// do runs the stage's function for the job. A panic is an error, also one of a method of the result or of the
// error: of a nil pointer in an error, for example.
func (a *attempt) do(ctx context.Context, job *Job) (f finished) {
	defer func() {
		if v := recover(); v != nil {
			err := redact.Error(&panicError{v, debug.Stack()}, job.Source)
			f = a.conclude(nil, nil, err, context.Cause(ctx))
		}
	}()
	result, d, err := a.stage.do(ctx, job)
	err = redact.Error(err, job.Source) // every reader of events and history sees it
	if d != nil {
		d.why = redact.Error(d.why, job.Source)
	}
	var raw json.RawMessage
	if err == nil {
		raw, err = encodeResult(result)
	}
	return a.conclude(raw, d, err, context.Cause(ctx))
}

// cancel cancels the attempt's context. If its Work has not returned after the
// cancelGrace, overdue receives its token, once.
func (a *attempt) cancel(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(why)
	if a.overdueTimer == nil && !a.ended {
		a.overdueTimer = time.AfterFunc(cancelGrace, func() { a.overdue <- a.claim.Token })
	}
}

// stopTimers ends the timers of an attempt that has ended.
func (a *attempt) stopTimers() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.end(nil)
	for _, t := range []*time.Timer{a.stallTimer, a.overdueTimer} {
		if t != nil {
			t.Stop()
		}
	}
}

// maxResult is the size limit of a result, in bytes. PostgreSQL would store more, but
// every reader of a task reads its results.
const maxResult = 16 << 20

// encodeResult returns the result as JSON. PostgreSQL's jsonb cannot store NUL.
func encodeResult(result any) (json.RawMessage, error) {
	if result == nil {
		return nil, nil
	}
	raw, err := json.Marshal(result)
	if err == nil && containsNUL(raw) {
		err = errors.New(`it contains \u0000`)
	}
	if err == nil && len(raw) > maxResult {
		err = fmt.Errorf("it has %d MiB, the limit is %d: write large results to files", len(raw)>>20, maxResult>>20)
	}
	if err != nil {
		return nil, Permanent(fmt.Errorf("store result: %w", err))
	}
	return raw, nil
}

// containsNUL reports whether JSON contains an escaped NUL, and not an escaped backslash
// followed by the same letters.
func containsNUL(raw []byte) bool {
	nul := []byte(`\u0000`)
	for rest := raw; ; {
		i := bytes.Index(rest, nul)
		if i < 0 {
			return false
		}
		before := rest[:i]
		if slashes := len(before) - len(bytes.TrimRight(before, `\`)); slashes%2 == 0 {
			return true
		}
		rest = rest[i+len(nul):]
	}
}

// conclude decides the outcome of an attempt. cause is that of its context, if it was
// cancelled.
func (a *attempt) conclude(result json.RawMessage, d *division, err, cause error) finished {
	report := engine.Report{Task: a.claim.Task, Stage: a.claim.Stage, Part: a.claim.Part, Token: a.claim.Token}
	f := finished{attempt: a, err: err, report: report}
	switch {
	case errors.Is(cause, errRevoked):
		f.kind, f.revoked, f.err = ClaimRevoked, true, cause
	case err == nil && d != nil && d.why != nil && a.claim.Attempt >= a.stage.MaxAttempts:
		a.fail(&f, d.why, nil)
	case err == nil:
		f.setResult(result, d)
	case isInterruption(cause):
		f.kind, f.report.Outcome, f.err = ClaimReleased, engine.Released, cause
		f.report.Error, f.report.Class = cause.Error(), "interrupted"
	case IsPostponed(err) && !IsPermanent(err) && cause == nil:
		f.kind, f.report.Outcome, f.suspends = ClaimReleased, engine.Released, suspendsStage(err)
		f.report.Error, f.report.Class = err.Error(), "postponed"
		delay, _ := RetryDelay(err)
		f.report.RetryIn = jitter(max(delay, time.Since(a.started)))
	default:
		a.fail(&f, err, cause)
	}
	return f
}

// isInterruption reports whether an attempt was cancelled for a reason that is not the task's.
func isInterruption(cause error) bool {
	return slices.ContainsFunc([]error{ErrDraining, ErrLeaseLost, errNoSlot, errPaused, errSuspended},
		func(err error) bool { return errors.Is(cause, err) })
}

func (a *attempt) fail(f *finished, err, cause error) {
	switch {
	case errors.Is(cause, ErrTimeout):
		err = fmt.Errorf("%w after %s: %w", ErrTimeout, a.stage.Timeout, err)
	case errors.Is(cause, ErrStalled):
		err = fmt.Errorf("%w for %s: %w", ErrStalled, a.stage.Stall, err)
	}
	f.kind, f.report.Outcome = AttemptFailed, engine.Failed
	f.err, f.report.Error, f.report.Class = err, err.Error(), class(err)
	retryDelay, again := a.stage.retryDelay(a.claim.Attempt)
	if IsPermanent(err) || !again {
		f.kind, f.report.Dead = StageDead, true
		return
	}
	f.report.RetryIn = retryDelay
	if delay, ok := RetryDelay(err); ok {
		f.report.RetryIn = delay
	}
}

// class is the kind of an error, for the history.
func class(err error) string {
	var panicked *panicError
	_, later := RetryDelay(err)
	switch {
	case errors.As(err, &panicked):
		return "panic"
	case errors.Is(err, ErrTimeout):
		return "timeout"
	case errors.Is(err, ErrStalled):
		return "stalled"
	case IsPermanent(err):
		return "permanent"
	case later:
		return "retry_after"
	}
	return "error"
}

// setProgress sets the latest progress, for the heartbeat to record.
func (a *attempt) setProgress(p Progress) {
	a.mu.Lock()
	defer a.mu.Unlock()
	forward := p.Percent != a.progress.Percent || p.Note != a.progress.Note
	a.progress, a.progressed = p, true
	// A timer that has fired stays so.
	if forward && a.stallTimer != nil && a.stallTimer.Stop() {
		a.stallTimer.Reset(a.stage.Stall)
	}
}

// clean returns progress that the database can store.
func (p Progress) clean() Progress {
	const maxNote = 200
	if math.IsNaN(p.Percent) {
		p.Percent = -1
	}
	p.Percent = math.Round(min(max(p.Percent, -1), 100)*100) / 100 // two decimals
	if math.IsNaN(p.Speed) || math.IsInf(p.Speed, 0) || p.Speed < 0 {
		p.Speed = 0
	}
	p.ETA = max(p.ETA, 0)
	p.Note = strings.ReplaceAll(strings.ToValidUTF8(p.Note, "\uFFFD"), "\x00", "\uFFFD")
	if len(p.Note) > maxNote {
		p.Note = strings.ToValidUTF8(p.Note[:maxNote], "")
	}
	return p
}

// running describes the attempt for the heartbeat: progressed says whether it made progress
// since the last call, started whether it is more than prefetched.
func (a *attempt) running() (r store.Running, progressed, started bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	progressed = a.progressed && !a.ended
	a.progressed = false
	return store.Running{
		Task: a.claim.Task, Stage: a.stage.Name, Part: a.claim.Part, Parts: a.claim.Parts, Token: a.claim.Token, Attempt: a.claim.Attempt,
		Percent: a.progress.Percent, Speed: a.progress.Speed, ETA: a.progress.ETA.Seconds(), Note: a.progress.Note,
	}, progressed, !a.started.IsZero()
}
