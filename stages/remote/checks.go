package remote

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// checks are the checks of files in progress, and their results, by the claim's token.
type checks struct {
	mu      sync.Mutex // guards byToken
	byToken map[store.ID]*check
	running sync.WaitGroup
}

// check is one call of Accept. The result and the error are set before done is closed.
type check struct {
	started  time.Time
	shown    bool          // in the progress; by the lock of checks
	recorded chan struct{} // closed when recordWhenChecked has ended, nil before it begins; by the lock of checks
	done     chan struct{}
	result   json.RawMessage
	err      error
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
	delete(c.byToken, token)
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
	one := &check{started: time.Now(), done: make(chan struct{})}
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
	isFirst := one != nil && one.recorded == nil // nil: the check has failed meanwhile
	if isFirst {
		one.recorded = make(chan struct{})
	}
	c.checks.mu.Unlock()
	if !isFirst {
		return
	}
	c.checks.running.Go(func() {
		defer close(one.recorded)
		if <-one.done; one.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(c.context, requestTimeout)
		defer cancel()
		err := c.exchangeNow(ctx, w, exchangeRequest{Reports: []reportBody{body}}, nil, new(exchangeResponse))
		if err != nil && c.context.Err() == nil {
			c.o.OnError(err)
		}
	})
}

// maxExpiryDelay is how long the claims of a worker are kept after its end, to record a stage whose files are being checked.
const maxExpiryDelay = 5 * time.Second

// awaitRecording waits until the checks of files of some workers are recorded.
func (c *Coordinator) awaitRecording(ctx context.Context, workers []store.ID) {
	ctx, cancel := context.WithTimeout(ctx, maxExpiryDelay)
	defer cancel()
	for _, recorded := range c.recordings(workers) {
		select {
		case <-recorded:
		case <-ctx.Done():
			return
		}
	}
}

func (c *Coordinator) recordings(workers []store.ID) (all []chan struct{}) {
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
			if one := c.checks.byToken[token]; one != nil && one.recorded != nil {
				all = append(all, one.recorded)
			}
		}
	}
	return all
}
