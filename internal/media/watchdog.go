package media

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

const (
	defaultStall = 2 * time.Minute
	// watchInterval is how often a running child is looked at, at least.
	watchInterval = 250 * time.Millisecond
	// stepInterval is how often its steps are passed on, at most.
	stepInterval = time.Second
)

// withStepCounter is t for one call of a method, whose steps are counted from 1.
func (t Tools) withStepCounter() Tools {
	t.steps = new(int64)
	return t
}

// step tells of a step forward.
func (t Tools) step() {
	if t.Step != nil && t.steps != nil {
		*t.steps++
		t.Step(*t.steps)
	}
}

// watch cancels the child when it makes no step forward, as stillness has it,
// or when it takes more memory than it may.
func (t Tools) watch(ctx context.Context, cancel context.CancelCauseFunc, p *stdoutMonitor, quiet bool, pid int) {
	still := stallDetector{stall: t.stall()}
	every := watchInterval
	if still.stall > 0 {
		every = min(max(still.stall/16, time.Millisecond), watchInterval)
	}
	most := t.MemoryLimit()
	tick := time.NewTicker(every)
	defer tick.Stop()
	beats, told, before := p.steps.Load(), time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// While this process was stopped, or the host asleep, nobody read what
		// the child had to say: that is no standstill of the child's.
		now := time.Now()
		wall := min(now.Sub(before), 4*every)
		before = now
		seen := readResourceUsage(pid)
		seen.bytes -= p.bytes.Load() // to have said the same again is no work
		alive := still.observe(wall, seen, func() bool { return isRunnable(pid) })
		if n := p.steps.Load(); n != beats && !quiet {
			beats, alive = n, true
			still.reset()
		}
		if ctx.Err() != nil {
			return // it moves because it is being ended
		}
		if alive && now.Sub(told) >= stepInterval {
			told = now
			t.step()
		}
		if err := still.err(); err != nil {
			cancel(err)
			return
		}
		if most <= 0 {
			continue
		}
		if size := residentBytes(pid); size > most {
			cancel(fmt.Errorf("%w: it took %d MiB, and %d are allowed", ErrMemory, size>>20, most>>20))
			return
		}
	}
}

// stall is Tools.Stall with its default; 0 means never.
func (t Tools) stall() time.Duration {
	if t.Stall == 0 {
		return defaultStall
	}
	return max(t.Stall, 0)
}

// stdoutMonitor passes stdout on and counts signs of life. A writer that knows better
// than "there was output" says so by being a beater.
type stdoutMonitor struct {
	next  io.Writer
	steps atomic.Int64
	bytes atomic.Int64
}

type stepCounter interface{ stepCount() int64 }

func (p *stdoutMonitor) Write(b []byte) (int, error) {
	p.bytes.Add(int64(len(b)))
	if p.next == nil {
		p.steps.Add(1)
		return len(b), nil
	}
	n, err := p.next.Write(b)
	if w, ok := p.next.(stepCounter); ok {
		p.steps.Store(w.stepCount())
	} else {
		p.steps.Add(1)
	}
	return n, err
}
