package scenario

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// stageCounter counts how often each stage of many tasks started and was completed, and keeps
// the time of the first start and the last completion. It keeps no more, so that it costs
// little under full load.
type stageCounter struct {
	base           time.Time
	counts         []atomic.Uint32 // by task and stage: starts, and in the upper half completions
	remaining      atomic.Int64    // completions
	unknown        atomic.Int64    // observations of unknown tasks
	firstStart     atomic.Int64    // since base
	lastCompletion atomic.Int64    // since base
	done           chan struct{}
}

const completion = 1 << 16

func newStageCounter(tasks int) *stageCounter {
	c := &stageCounter{
		base: time.Now(), counts: make([]atomic.Uint32, tasks*harness.StageCount), done: make(chan struct{}),
	}
	c.remaining.Store(int64(len(c.counts)))
	c.firstStart.Store(math.MaxInt64)
	return c
}

// observe is for harness.Options.
func (c *stageCounter) observe(o harness.Observation) {
	i := o.Task*int64(harness.StageCount) + int64(o.Stage)
	if o.Task < 0 || i >= int64(len(c.counts)) {
		c.unknown.Add(1)
		return
	}
	at := int64(o.At.Sub(c.base))
	switch o.Kind {
	case harness.Started:
		c.counts[i].Add(1)
		for first := c.firstStart.Load(); at < first && !c.firstStart.CompareAndSwap(first, at); {
			first = c.firstStart.Load()
		}
	case harness.Completed:
		for last := c.lastCompletion.Load(); at > last && !c.lastCompletion.CompareAndSwap(last, at); {
			last = c.lastCompletion.Load()
		}
		if c.counts[i].Add(completion)/completion == 1 && c.remaining.Add(-1) == 0 {
			close(c.done)
		}
	}
}

// wait returns when every stage of every task is completed, or an error if nothing proceeds.
func (c *stageCounter) wait(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	before, since := c.remaining.Load(), time.Now()
	for {
		select {
		case <-c.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		if now := c.remaining.Load(); now != before {
			before, since = now, time.Now()
		} else if time.Since(since) > stuckTimeout {
			return fmt.Errorf("stuck: %d of %d stages are completed, and none was in the last %v",
				int64(len(c.counts))-now, len(c.counts), stuckTimeout)
		}
	}
}

// check returns an error unless every stage ran exactly once. The workers must have stopped.
func (c *stageCounter) check() error {
	if n := c.unknown.Load(); n > 0 {
		return fmt.Errorf("%d observations of unknown tasks", n)
	}
	for i := range c.counts {
		if n := c.counts[i].Load(); n != completion+1 {
			return fmt.Errorf("%v of task %d started %d times and was completed %d times",
				harness.Stage(i%harness.StageCount), i/harness.StageCount, n%completion, n/completion)
		}
	}
	return nil
}

// took returns the time from the first start to the last completion.
func (c *stageCounter) took() time.Duration {
	return time.Duration(c.lastCompletion.Load() - c.firstStart.Load())
}
