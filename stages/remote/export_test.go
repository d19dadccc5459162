package remote

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Waiting is how many requests of workers wait.
func (c *Coordinator) Waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting)
}

// LargeRequests is how many large requests of a principal are being read.
func (c *Coordinator) LargeRequests(principal string) int { return len(c.limitsOf(principal).large) }

// Unencodable serves a response that JSON cannot have.
func (c *Coordinator) Unencodable() http.Handler {
	return handle(c, func(context.Context, request, noContent) (float64, error) { return math.NaN(), nil })
}

// EndUnused ends the workers that sent nothing for some time after their registration.
func (c *Coordinator) EndUnused(ctx context.Context, after time.Duration) error {
	return c.endUnused(ctx, after)
}

// EndStalled ends the claims without progress, after it has set the time of the latest progress of one.
func (c *Coordinator) EndStalled(ctx context.Context, token store.ID, at time.Time) error {
	c.mu.Lock()
	for _, w := range c.workers {
		if _, held := w.claims[token]; held {
			w.progressAt[token] = at
		}
	}
	c.mu.Unlock()
	return c.endStalled(ctx)
}
