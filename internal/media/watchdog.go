package media

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

const (
	defaultStall = 2 * time.Minute
	// watchInterval is the longest time between two checks of a child.
	watchInterval = 250 * time.Millisecond
	// stepInterval is the shortest time between two calls of Tools.Step.
	stepInterval = time.Second
)

// withStepCounter returns t for one call of a method; its steps count from 1.
func (t Tools) withStepCounter() Tools {
	t.steps = new(int64)
	return t
}

// step reports progress to the caller.
func (t Tools) step() {
	if t.Step != nil && t.steps != nil {
		*t.steps++
		t.Step(*t.steps)
	}
}

// watch cancels the child if it stalls, takes too much memory or makes too many files.
func (t Tools) watch(
	ctx context.Context, cancel context.CancelCauseFunc, stdout *stdoutMonitor, noProgress bool, files *fileLimit, pid int,
) {
	detector := stallDetector{stall: t.stall()}
	interval := detector.interval()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	steps, reported, before := stdout.steps.Load(), time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// While this process is frozen or the host sleeps, nothing reads the
		// child's output; that time does not count.
		now := time.Now()
		wall := min(now.Sub(before), 4*interval)
		before = now
		usage := readResourceUsage(pid)
		usage.bytes -= stdout.bytes.Load() // repeating the same output is no activity
		active := detector.observe(wall, usage, func() bool { return isRunnable(pid) })
		if n := stdout.steps.Load(); n != steps && !noProgress {
			steps, active = n, true
			detector.reset()
		}
		if ctx.Err() != nil {
			return // the activity is that of being killed
		}
		if active && now.Sub(reported) >= stepInterval {
			reported = now
			t.step()
		}
		if err := cmp.Or(detector.err(), t.checkMemory(pid), files.watch()); err != nil {
			cancel(err)
			return
		}
	}
}

// interval is the time between two checks: short enough to measure the stall time.
func (s *stallDetector) interval() time.Duration {
	if s.stall <= 0 {
		return watchInterval
	}
	return min(max(s.stall/16, time.Millisecond), watchInterval)
}

func (t Tools) checkMemory(pid int) error {
	limit := t.MemoryLimit()
	if limit <= 0 {
		return nil
	}
	if size := residentBytes(pid); size > limit {
		return fmt.Errorf("%w: it used %d MiB; the limit is %d MiB", ErrMemory, size>>20, limit>>20)
	}
	return nil
}

// stall is Tools.Stall with its default; 0 means never.
func (t Tools) stall() time.Duration {
	if t.Stall == 0 {
		return defaultStall
	}
	return max(t.Stall, 0)
}

// stdoutMonitor passes output on and counts steps. Every write is a step, unless
// the next writer is a stepCounter.
type stdoutMonitor struct {
	next  io.Writer
	steps atomic.Int64
	bytes atomic.Int64
}

// stepCounter is a writer that knows which output shows progress.
type stepCounter interface{ stepCount() int64 }

// Write counts b and passes it on.
func (m *stdoutMonitor) Write(b []byte) (int, error) {
	m.bytes.Add(int64(len(b)))
	if m.next == nil {
		m.steps.Add(1)
		return len(b), nil
	}
	n, err := m.next.Write(b)
	if w, ok := m.next.(stepCounter); ok {
		m.steps.Store(w.stepCount())
	} else {
		m.steps.Add(1)
	}
	return n, err
}
