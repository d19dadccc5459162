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
	// lookEvery is how often a running child is looked at, at least.
	lookEvery = 250 * time.Millisecond
	// stepEvery is how often its steps are passed on, at most.
	stepEvery = time.Second
)

// counting is t for one call of a method, whose steps are counted from 1.
func (t Tools) counting() Tools {
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

// watch cancels the child when its pulse stops, or when it takes more memory
// than it may.
func (t Tools) watch(ctx context.Context, cancel context.CancelCauseFunc, p *pulse, quiet bool, pid int) {
	stall := cmp.Or(max(t.Stall, 0), defaultStall)
	every := min(max(stall/16, time.Millisecond), lookEvery)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var (
		beats, told = p.beats.Load(), time.Now()
		stood       time.Duration
		before      = time.Now()
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// While this process was stopped, or the host asleep, nobody read what
		// the child had to say: that is no standstill of the child's.
		now := time.Now()
		stood += min(now.Sub(before), 4*every)
		before = now
		if n := p.beats.Load(); n != beats && !quiet {
			beats, stood = n, 0
			if now.Sub(told) >= stepEvery {
				told = now
				t.step()
			}
		}
		if stood >= stall {
			cancel(fmt.Errorf("%w for %v", ErrStalled, stall))
			return
		}
		if t.Memory <= 0 {
			continue
		}
		if size := residentBytes(pid); size > t.Memory {
			cancel(fmt.Errorf("%w: it took %d MiB, and %d are allowed", ErrMemory, size>>20, t.Memory>>20))
			return
		}
	}
}

// pulse passes stdout on and counts signs of life. A writer that knows better
// than "there was output" says so by being a beater.
type pulse struct {
	next  io.Writer
	beats atomic.Int64
}

type beater interface{ beat() int64 }

func (p *pulse) Write(b []byte) (int, error) {
	if p.next == nil {
		p.beats.Add(1)
		return len(b), nil
	}
	n, err := p.next.Write(b)
	if w, ok := p.next.(beater); ok {
		p.beats.Store(w.beat())
	} else {
		p.beats.Add(1)
	}
	return n, err
}
