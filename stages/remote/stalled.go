package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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

// endStalled ends the claims of stages with a Stall whose workers live and show no progress, by this host's clock: heartbeats alone must
// not hold a task. Progress is a change of its percent or note, and any request for a file of the claim. It must not delay the renewal of
// leases for long: what it does not end in time, the next call does.
func (c *Coordinator) endStalled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	var errs []error
	for w, claims := range c.stalledClaims(time.Now()) {
		select {
		case w.exchanging <- struct{}{}:
		default:
			continue // its own exchange may end the claims
		}
		errs = append(errs, c.endClaims(ctx, w, claims))
		<-w.exchanging
	}
	return errors.Join(errs...)
}

// stalledClaims lists the claims without progress for too long, by their workers.
func (c *Coordinator) stalledClaims(now time.Time) map[*worker][]engine.Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	stalled := make(map[*worker][]engine.Claim)
	for _, w := range c.workers {
		maps.DeleteFunc(w.progressAt, func(token store.ID, _ time.Time) bool { _, held := w.claims[token]; return !held })
		for token, claim := range w.claims {
			limit, last := c.o.Pipeline.Stall(claim.Stage), w.progressAt[token]
			switch {
			case last.IsZero() || c.checks.has(token):
				w.progressAt[token] = now
			case limit > 0 && now.Sub(last) > limit+stallGrace:
				stalled[w] = append(stalled[w], claim)
			}
		}
	}
	return stalled
}

// endClaims records that attempts of a worker made no progress. The caller has the worker's turn of exchanging.
func (c *Coordinator) endClaims(ctx context.Context, w *worker, claims []engine.Claim) error {
	var reports []engine.Report
	for _, claim := range claims {
		report := engine.Report{Task: claim.Task, Stage: claim.Stage, Part: claim.Part, Token: claim.Token}
		reports = append(reports, c.failed(report, claim, reportBody{
			Error: fmt.Sprintf("%v for %s, says the coordinator", stages.ErrStalled, c.o.Pipeline.Stall(claim.Stage)), Class: "stalled",
		}))
	}
	c.mu.Lock()
	free := slices.Clone(w.free)
	c.mu.Unlock()
	_, err := c.claimFor(ctx, w, reports, free, make([]bool, len(free)))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, claim := range claims {
		if _, held := w.claims[claim.Token]; err == nil && !held {
			w.rememberLost(claim.Token, false)
			w.hasLost = true
			c.answer(w, waitResult{}) // it asks which claims are lost
		}
	}
	return err
}

// showProgress records progress of a claim.
func (c *Coordinator) showProgress(w *worker, token store.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.progressAt[token] = time.Now()
}
