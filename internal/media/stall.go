package media

import (
	"fmt"
	"time"
)

const (
	// A child that uses this share of a processor, or transfers this many bytes
	// per second, is active. A hung program often still wakes up to poll a queue
	// or to repeat a message; that takes less.
	activeCPUShare       = 0.01
	activeBytesPerSecond = 4 << 10
	// A child without progress may use busyStallFactor × Tools.Stall of
	// processor time, and wait starvedStallFactor × Tools.Stall for a processor.
	busyStallFactor    = 5
	starvedStallFactor = 10
)

// resourceUsage is what a child and its descendants have used.
type resourceUsage struct {
	cpu   time.Duration
	bytes int64 // read and written
	known bool  // false if the system does not report it
}

// stallDetector decides whether a child is stalled. It measures how long the
// child has made no progress, and what it did in that time. Wall time alone is
// not enough: on a busy host, a child of low priority may need minutes for a
// step of milliseconds.
type stallDetector struct {
	stall   time.Duration
	wall    time.Duration // since the last progress
	busy    time.Duration // processor time since then
	starved time.Duration // recent time runnable without a processor
	idle    time.Duration // recent time neither active nor runnable

	before resourceUsage
}

// reset records progress.
func (s *stallDetector) reset() { s.wall, s.busy, s.starved, s.idle = 0, 0, 0, 0 }

// observe adds an interval, at the end of which the child has used now. It
// reports whether the child is active, or would be if it got a processor.
func (s *stallDetector) observe(wall time.Duration, now resourceUsage, isRunnable func() bool) (active bool) {
	s.wall += wall
	// The usage of a process that has just ended may be missing for a moment.
	cpu, bytes := max(0, now.cpu-s.before.cpu), max(0, now.bytes-s.before.bytes)
	s.before = resourceUsage{s.before.cpu + cpu, s.before.bytes + bytes, now.known}
	s.busy += cpu
	work := time.Duration(float64(cpu)/activeCPUShare + float64(bytes)/activeBytesPerSecond*float64(time.Second))
	inactive := wall - work
	active = inactive <= 0
	if !active && now.known && isRunnable() {
		s.starved += inactive
		return true
	}
	s.idle = max(0, s.idle+inactive)
	if active {
		s.starved = max(0, s.starved+inactive)
	}
	return active
}

// err returns the reason to kill the child, if there is one.
func (s *stallDetector) err() error {
	switch {
	case s.stall <= 0:
		return nil
	case s.idle >= s.stall:
		return fmt.Errorf("%w for %v", ErrStalled, s.stall)
	case s.busy >= busyStallFactor*s.stall && s.wall >= s.stall:
		return fmt.Errorf("%w for %v, in which it used %v of processor time",
			ErrStalled, s.wall.Round(time.Second), s.busy.Round(time.Second))
	case s.starved >= starvedStallFactor*s.stall:
		return fmt.Errorf("%w in %v: other programs use the processors of this host",
			ErrStarved, s.starved.Round(time.Second))
	}
	return nil
}
