package scenario

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// tally counts how often each stage of many tasks began and was completed, and
// from when to when that took. It keeps no more, so that it costs little at
// full load.
type stageCounter struct {
	base     time.Time
	counts   []atomic.Uint32 // by task and stage: beginnings, and in the upper half completions
	unheard  atomic.Int64    // completions to come
	strayed  atomic.Int64    // moments of tasks that nobody submitted
	began    atomic.Int64    // the first work, since base; then
	finished atomic.Int64    // the last completion
	done     chan struct{}
}

const completion = 1 << 16

func newStageCounter(tasks int) *stageCounter {
	t := &stageCounter{
		base: time.Now(), counts: make([]atomic.Uint32, tasks*harness.StageCount), done: make(chan struct{}),
	}
	t.unheard.Store(int64(len(t.counts)))
	t.began.Store(math.MaxInt64)
	return t
}

// observe is for harness.Options.
func (t *stageCounter) observe(m harness.Observation) {
	i := m.Task*int64(harness.StageCount) + int64(m.Stage)
	if m.Task < 0 || i >= int64(len(t.counts)) {
		t.strayed.Add(1)
		return
	}
	switch m.Kind {
	case harness.Started:
		t.counts[i].Add(1)
		for at := int64(m.At.Sub(t.base)); ; {
			if first := t.began.Load(); at >= first || t.began.CompareAndSwap(first, at) {
				return
			}
		}
	case harness.Completed:
		for at := int64(m.At.Sub(t.base)); ; {
			if last := t.finished.Load(); at <= last || t.finished.CompareAndSwap(last, at) {
				break
			}
		}
		if t.counts[i].Add(completion)/completion == 1 && t.unheard.Add(-1) == 0 {
			close(t.done)
		}
	}
}

// wait returns when every stage of every task was completed, or the error that
// nothing goes on any more.
func (t *stageCounter) wait(ctx context.Context) error {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	before, since := t.unheard.Load(), time.Now()
	for {
		select {
		case <-t.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
		}
		if now := t.unheard.Load(); now != before {
			before, since = now, time.Now()
		} else if time.Since(since) > stuckAfter {
			return fmt.Errorf("stuck: %d of %d stages were completed, and none for %v",
				int64(len(t.counts))-now, len(t.counts), stuckAfter)
		}
	}
}

// check is for the end, when nobody works any more: everything was done, and
// once.
func (t *stageCounter) check() error {
	if n := t.strayed.Load(); n > 0 {
		return fmt.Errorf("%d stages of tasks that nobody submitted", n)
	}
	for i := range t.counts {
		if c := t.counts[i].Load(); c != completion+1 {
			return fmt.Errorf("%v of task %d began %d times and was completed %d times",
				harness.Stage(i%harness.StageCount), i/harness.StageCount, c%completion, c/completion)
		}
	}
	return nil
}

// took is the time from the first work to the last completion.
func (t *stageCounter) took() time.Duration {
	return time.Duration(t.finished.Load() - t.began.Load())
}
