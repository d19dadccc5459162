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

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// attempt is one claim being worked on.
type attempt struct {
	claim   engine.Claim
	stage   *Stage
	ctx     context.Context
	end     context.CancelCauseFunc // of ctx; see cancel
	overdue chan<- store.ID         // told its token if it does not end; never blocks

	claimed       time.Time
	began         time.Time // zero while it waits for a slot
	turn          int       // of the dispatcher, that started it
	wokenByNotify bool      // claimed at the first look after news, while slots were free

	mu           sync.Mutex
	progress     Progress
	progressed   bool        // progress was made since it was last written down
	watchdog     *time.Timer // ends the attempt when no progress is made; nil for never
	overdueTimer *time.Timer // runs since the attempt was told to end
	ended        bool
}

// finished is an attempt that ended, and what is to be reported of it.
type finished struct {
	*attempt
	report   engine.Report
	kind     Kind
	err      error
	took     time.Duration
	dropped  bool      // the claim is somebody else's: nothing to report
	suspends bool      // the error is this host's; see [Postpone]
	next     time.Time // the row was locked by somebody: not to be reported before
	tries    int
}

func newAttempt(life context.Context, c engine.Claim, stage *Stage, over chan<- store.ID) *attempt {
	a := &attempt{claim: c, stage: stage, overdue: over, claimed: time.Now()}
	a.ctx, a.end = context.WithCancelCause(life)
	return a
}

// begin lets the clock of its timeouts run.
func (a *attempt) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.began = time.Now()
	if a.stage.Stall > 0 {
		a.watchdog = time.AfterFunc(a.stage.Stall, func() { a.cancel(ErrStalled) })
	}
}

// work runs the attempt to its end. It never panics, and says what became of
// it whatever the stage did.
func (a *attempt) work(job *Job) finished {
	ctx, cancel := a.ctx, context.CancelFunc(func() {})
	if a.stage.Timeout > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, a.stage.Timeout, ErrTimeout)
		defer context.AfterFunc(ctx, func() { a.cancel(context.Cause(ctx)) })()
	}
	defer cancel()
	result, err := call(ctx, a.stage.Work, job)
	err = redact.Error(err, job.Source) // what is told and kept of it is for every reader
	var raw json.RawMessage
	if err == nil {
		raw, err = encodeResult(result)
	}
	f := a.conclude(raw, err, context.Cause(ctx))
	f.took = time.Since(a.began)
	return f
}

// holdsNUL reports whether JSON has an escaped NUL in it, and not only an
// escaped backslash before what looks like one.
func holdsNUL(raw []byte) bool {
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

// stubbornAfter is how long work that was told to end may take over it.
const cancelGrace = 15 * time.Second

// cancel tells the attempt to end. Where it has not some time later, that is
// said on over, once.
func (a *attempt) cancel(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(why)
	if a.overdueTimer == nil && !a.ended {
		a.overdueTimer = time.AfterFunc(cancelGrace, func() { a.overdue <- a.claim.Token })
	}
}

// rest ends what watches the attempt, which has ended.
func (a *attempt) stopTimers() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.end(nil)
	for _, t := range []*time.Timer{a.watchdog, a.overdueTimer} {
		if t != nil {
			t.Stop()
		}
	}
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

// resultAtMost is how large a result may be, in bytes. PostgreSQL would hold
// more, but whoever reads a task reads its results.
const resultAtMost = 16 << 20

// encodeResult makes the JSON that is kept. PostgreSQL's jsonb cannot hold a
// NUL, and no further attempt would change that.
func encodeResult(result any) (json.RawMessage, error) {
	if result == nil {
		return nil, nil
	}
	raw, err := json.Marshal(result)
	if err == nil && holdsNUL(raw) {
		err = errors.New(`it holds \u0000`)
	}
	if err == nil && len(raw) > resultAtMost {
		err = fmt.Errorf("it has %d MiB, and %d are allowed: large things belong into files", len(raw)>>20, resultAtMost>>20)
	}
	if err != nil {
		return nil, Permanent(fmt.Errorf("keep result: %w", err))
	}
	return raw, nil
}

// conclude decides what became of an attempt: why is the cause of its
// context's end, if it ended.
func (a *attempt) conclude(result json.RawMessage, err, why error) finished {
	f := finished{attempt: a, err: err, report: engine.Report{Task: a.claim.Task, Stage: a.claim.Stage, Token: a.claim.Token}}
	switch {
	case errors.Is(why, errRevoked):
		f.kind, f.dropped, f.err = ClaimRevoked, true, why
	case err == nil:
		f.kind, f.report.Outcome, f.report.Result = StageCompleted, engine.Completed, result
	case errors.Is(why, ErrDraining), errors.Is(why, ErrLeaseLost), errors.Is(why, errNoSlot), errors.Is(why, errPaused), errors.Is(why, errSuspended):
		f.kind, f.report.Outcome, f.err = ClaimReleased, engine.Released, why
		f.report.Error, f.report.Class = why.Error(), "interrupted"
	case IsPostponed(err) && !IsPermanent(err) && why == nil:
		f.kind, f.report.Outcome, f.suspends = ClaimReleased, engine.Released, SuspendsStage(err)
		f.report.Error, f.report.Class = err.Error(), "postponed"
		delay, _ := RetryDelay(err)
		f.report.RetryIn = jitter(max(delay, time.Since(a.began)))
	default:
		a.fail(&f, err, why)
	}
	return f
}

func (a *attempt) fail(f *finished, err, why error) {
	switch {
	case errors.Is(why, ErrTimeout):
		err = fmt.Errorf("%w after %s: %w", ErrTimeout, a.stage.Timeout, err)
	case errors.Is(why, ErrStalled):
		err = fmt.Errorf("%w for %s: %w", ErrStalled, a.stage.Stall, err)
	}
	f.kind, f.report.Outcome = AttemptFailed, engine.Failed
	f.err, f.report.Error, f.report.Class = err, err.Error(), class(err)
	if IsPermanent(err) || a.claim.Attempt >= a.stage.MaxAttempts {
		f.kind, f.report.Dead = StageDead, true
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
	case errors.Is(err, ErrStalled):
		return "stalled"
	case IsPermanent(err):
		return "permanent"
	case later:
		return "retry_after"
	}
	return "error"
}

// note keeps the latest progress, for the heartbeat to write down.
func (a *attempt) setProgress(p Progress) {
	a.mu.Lock()
	defer a.mu.Unlock()
	forward := p.Percent != a.progress.Percent || p.Note != a.progress.Note
	a.progress, a.progressed = p, true
	// A watchdog that went off stays so.
	if forward && a.watchdog != nil && a.watchdog.Stop() {
		a.watchdog.Reset(a.stage.Stall)
	}
}

// clean makes of what a stage said something that can be written down.
func (p Progress) clean() Progress {
	const noteAtMost = 200
	if math.IsNaN(p.Percent) {
		p.Percent = -1
	}
	p.Percent = math.Round(min(max(p.Percent, -1), 100)*100) / 100 // as it is read by people
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

// running describes the attempt for others to see, whether that changed since the
// last time, and whether it has begun at all.
func (a *attempt) running() (r store.Running, moved, begun bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	moved = a.progressed
	a.progressed = false
	return store.Running{
		Task: a.claim.Task, Stage: a.stage.Name, Token: a.claim.Token, Attempt: a.claim.Attempt,
		Percent: a.progress.Percent, Speed: a.progress.Speed, ETA: a.progress.ETA.Seconds(), Note: a.progress.Note,
	}, moved && !a.ended, !a.began.IsZero() // what has ended moves no more
}
