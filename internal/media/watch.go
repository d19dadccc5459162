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

// watch cancels the child when it makes no step forward, as stillness has it,
// or when it takes more memory than it may.
func (t Tools) watch(ctx context.Context, cancel context.CancelCauseFunc, p *pulse, quiet bool, pid int) {
	still := stillness{stall: t.stall()}
	every := lookEvery
	if still.stall > 0 {
		every = min(max(still.stall/16, time.Millisecond), lookEvery)
	}
	most := t.MemoryLimit()
	tick := time.NewTicker(every)
	defer tick.Stop()
	beats, told, before := p.beats.Load(), time.Now(), time.Now()
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
		seen := lookAt(pid)
		seen.bytes -= p.bytes.Load() // to have said the same again is no work
		alive := still.passed(wall, seen, func() bool { return readyToRun(pid) })
		if n := p.beats.Load(); n != beats && !quiet {
			beats, alive = n, true
			still.forward()
		}
		if ctx.Err() != nil {
			return // it moves because it is being ended
		}
		if alive && now.Sub(told) >= stepEvery {
			told = now
			t.step()
		}
		if err := still.verdict(); err != nil {
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

// pulse passes stdout on and counts signs of life. A writer that knows better
// than "there was output" says so by being a beater.
type pulse struct {
	next  io.Writer
	beats atomic.Int64
	bytes atomic.Int64
}

type beater interface{ beat() int64 }

func (p *pulse) Write(b []byte) (int, error) {
	p.bytes.Add(int64(len(b)))
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
