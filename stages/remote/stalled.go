package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// stallGrace is how much longer than the Stall of a stage the coordinator waits for progress. A worker that keeps to the protocol ends
// such an attempt itself.
const stallGrace = 30 * time.Second

// maxRetryIn is the longest wait for another attempt that a worker can ask for, unless the stage's own is longer.
const maxRetryIn = time.Hour

// stalledClaim is a claim without progress, and its worker.
type stalledClaim struct {
	worker *worker
	claim  engine.Claim
}

// endStalled ends the claims of stages with a Stall whose workers live and show no progress, by this host's clock: heartbeats alone must
// not hold a task. Progress is a change of its percent or note, and any request for a file of the claim.
func (c *Coordinator) endStalled(ctx context.Context) error {
	var errs []error
	for _, s := range c.stalledClaims(time.Now()) {
		select {
		case s.worker.exchanging <- struct{}{}:
		default:
			continue // its own exchange may end the claim
		}
		errs = append(errs, c.endClaim(ctx, s.worker, s.claim))
		<-s.worker.exchanging
	}
	return errors.Join(errs...)
}

// stalledClaims lists the claims without progress for too long.
func (c *Coordinator) stalledClaims(now time.Time) (stalled []stalledClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		maps.DeleteFunc(w.progressAt, func(token store.ID, _ time.Time) bool { _, held := w.claims[token]; return !held })
		for token, claim := range w.claims {
			limit, last := c.o.Pipeline.Stall(claim.Stage), w.progressAt[token]
			isChecked, _ := c.checks.show(token)
			switch {
			case last.IsZero() || isChecked:
				w.progressAt[token] = now
			case limit > 0 && now.Sub(last) > limit+stallGrace:
				stalled = append(stalled, stalledClaim{w, claim})
			}
		}
	}
	return stalled
}

// endClaim records that an attempt of a worker made no progress. The caller has the worker's turn of exchanging.
func (c *Coordinator) endClaim(ctx context.Context, w *worker, claim engine.Claim) error {
	report := engine.Report{Task: claim.Task, Stage: claim.Stage, Part: claim.Part, Token: claim.Token}
	report = c.failed(report, claim, reportBody{
		Error: fmt.Sprintf("%v for %s, says the coordinator", stages.ErrStalled, c.o.Pipeline.Stall(claim.Stage)), Class: "stalled",
	})
	c.mu.Lock()
	free := make([]int, len(w.free))
	copy(free, w.free)
	c.mu.Unlock()
	_, err := c.claimFor(ctx, w, []engine.Report{report}, free, make([]bool, len(free)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, held := w.claims[claim.Token]; err == nil && !held {
		w.rememberLost(claim.Token, false)
		w.hasLost = true
		c.answer(w, waitResult{}) // it asks which claims are lost
	}
	return err
}

// showProgress records progress of a claim.
func (c *Coordinator) showProgress(w *worker, token store.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.progressAt[token] = time.Now()
}
