package remote

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// checks are the checks of files in progress, and their results, by the claim's token.
type checks struct {
	mu      sync.Mutex // guards byToken
	byToken map[store.ID]*check
	running sync.WaitGroup
}

// check is one call of Accept. The result and the error are set before done is closed. It is settled when its result
// is recorded, or will not be.
type check struct {
	started     time.Time
	shown       bool // in the progress; by the lock of checks
	isRecording bool // recordWhenChecked was called; by the lock of checks
	done        chan struct{}
	result      json.RawMessage
	err         error

	settle  func() // closes settled, once
	settled chan struct{}
}

func newCheck() *check {
	c := &check{started: time.Now(), done: make(chan struct{}), settled: make(chan struct{})}
	c.settle = sync.OnceFunc(func() { close(c.settled) })
	return c
}

// errNotChecked says that the check of an attempt's files goes on.
var errNotChecked = errors.New("the files are being checked")

// checkTimeout is how long after its start a request waits for the check of its files. Then the worker
// sends the report again, after checkPause, to learn how the check has ended.
const (
	checkTimeout = time.Second
	checkPause   = 2 * time.Second
)

// checkingNote is the note of an attempt's progress while its files are checked.
const checkingNote = "being checked"

func (c *checks) wait() { c.running.Wait() }

func (c *checks) forget(token store.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.byToken[token]; one != nil {
		one.settle()
	}
	delete(c.byToken, token)
}

func (c *checks) isKnown(token store.ID, one *check) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byToken[token] == one
}

// has reports whether the files of a claim are being checked.
func (c *checks) has(token store.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byToken[token] != nil
}

// show reports whether the files of a claim are being checked, and whether this call is the first to
// say so.
func (c *checks) show(token store.ID) (isChecked, isFirst bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byToken[token]
	if one == nil {
		return false, false
	}
	isFirst, one.shown = !one.shown, true
	return true, isFirst
}

// checkOutput checks the files of a claim. It returns errNotChecked while that goes on.
func (c *Coordinator) checkOutput(ctx context.Context, claim engine.Claim, result json.RawMessage) (json.RawMessage, error) {
	if c.o.Files == nil {
		return result, nil
	}
	if len(result) > maxResult {
		return nil, &RefusedError{Reason: "the result has more than 16 MiB"}
	}
	one := c.startCheck(claim, result)
	if !one.waitFor(ctx) {
		return nil, errNotChecked
	}
	var refused *RefusedError
	if one.err != nil && !errors.As(one.err, &refused) && !errors.Is(one.err, ErrOutputsElsewhere) {
		c.o.OnError(one.err)
		c.checks.forget(claim.Token)
		return nil, errNotChecked
	}
	return one.result, one.err
}

// waitFor reports whether the check ends within checkTimeout after its start.
func (c *check) waitFor(ctx context.Context) (done bool) {
	timer := time.NewTimer(time.Until(c.started.Add(checkTimeout)))
	defer timer.Stop()
	select {
	case <-c.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// startCheck starts the check of a claim's files, or finds the one that was started.
func (c *Coordinator) startCheck(claim engine.Claim, result json.RawMessage) *check {
	c.checks.mu.Lock()
	defer c.checks.mu.Unlock()
	if one := c.checks.byToken[claim.Token]; one != nil {
		return one
	}
	if c.checks.byToken == nil {
		c.checks.byToken = make(map[store.ID]*check)
	}
	one := newCheck()
	c.checks.byToken[claim.Token] = one
	c.checks.running.Go(func() {
		defer close(one.done)
		one.result, one.err = c.o.Files.Accept(c.context, claim, result)
	})
	return one
}

// recordWhenChecked records a completed stage as soon as the check of its files ends: the worker may be gone
// before it reports again. It leaves other outcomes to that report, which is answered with the reason.
func (c *Coordinator) recordWhenChecked(w *worker, body reportBody) {
	c.checks.mu.Lock()
	one := c.checks.byToken[body.Token]
	isFirst := one != nil && !one.isRecording // nil: it has failed, or is recorded, or the claim was lost
	if isFirst {
		one.isRecording = true
	}
	c.checks.mu.Unlock()
	if !isFirst {
		return
	}
	c.checks.running.Go(func() {
		defer one.settle()
		if <-one.done; one.err == nil {
			c.recordChecked(w, body, one)
		}
	})
}

// maxRecordPause is the longest pause between tries to record a stage.
const maxRecordPause = 500 * time.Millisecond

// recordChecked records a completed stage. It tries again while another transaction has locked the task, as those do that
// complete other parts of it.
func (c *Coordinator) recordChecked(w *worker, body reportBody, one *check) {
	ctx, cancel := context.WithTimeout(c.context, requestTimeout)
	defer cancel()
	pause := 2 * time.Millisecond
	for c.checks.isKnown(body.Token, one) {
		var out exchangeResponse
		err := c.exchangeNow(ctx, w, exchangeRequest{Reports: []reportBody{body}}, nil, &out)
		if err == nil && len(out.Retry) == 0 {
			return
		}
		if ctxsleep.For(ctx, pause) != nil {
			if err != nil && c.context.Err() == nil {
				c.o.OnError(err)
			}
			return
		}
		pause = min(2*pause, maxRecordPause)
	}
}

// maxExpiryDelay is how long the claims of a worker are kept after its end, to record a stage whose files are being checked.
const maxExpiryDelay = 5 * time.Second

// awaitChecks waits until the checks of files of some workers are settled.
func (c *Coordinator) awaitChecks(ctx context.Context, workers []store.ID) {
	ctx, cancel := context.WithTimeout(ctx, maxExpiryDelay)
	defer cancel()
	for _, one := range c.checksOf(workers) {
		select {
		case <-one.settled:
		case <-ctx.Done():
			return
		}
	}
}

func (c *Coordinator) checksOf(workers []store.ID) (all []*check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks.mu.Lock()
	defer c.checks.mu.Unlock()
	for _, id := range workers {
		w := c.workers[id]
		if w == nil {
			continue
		}
		for token := range w.claims {
			if one := c.checks.byToken[token]; one != nil {
				all = append(all, one)
			}
		}
	}
	return all
}
