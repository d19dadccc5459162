package media

import (
	"fmt"
	"time"
)

const (
	// activeCPUShare of a processor, or livelyBytes read and written in a second,
	// is work. A program that has hung often still wakes up now and then, to
	// look at a queue or to print the same report again; that takes less.
	activeCPUShare       = 0.01
	activeBytesPerSecond = 4 << 10
	// busyStallFactor and starvedFor are in units of Tools.Stall. They bound what a
	// child may do without a step forward: the processor time it may use, and
	// how long it may wait for a processor.
	busyStallFactor    = 5
	starvedStallFactor = 10
)

// resourceUsage are what the system says about a child and the processes below it.
type resourceUsage struct {
	cpu   time.Duration // used since they began
	bytes int64         // read and written, from and to wherever
	known bool          // false where the system does not say
}

// stallDetector is how long a child has made no step forward, and what it did
// meanwhile. Wall time alone says little: on a busy host, a child of low
// priority may take minutes for a step of milliseconds.
type stallDetector struct {
	stall   time.Duration
	wall    time.Duration // since the last step forward
	busy    time.Duration // processor time since then
	starved time.Duration // lately, ready to run and without a processor
	idle    time.Duration // lately, neither working nor ready to run

	before resourceUsage
}

// reset says that the child has made a step.
func (s *stallDetector) reset() { s.wall, s.busy, s.starved, s.idle = 0, 0, 0, 0 }

// observe takes a stretch of time into account, at whose end the child has the
// vitals now, and reports whether the child is alive: at work, or ready to work
// as soon as the host lets it.
func (s *stallDetector) observe(wall time.Duration, now resourceUsage, ready func() bool) (alive bool) {
	s.wall += wall
	// Of processes that have just ended, the numbers may be missing for a moment.
	cpu, bytes := max(0, now.cpu-s.before.cpu), max(0, now.bytes-s.before.bytes)
	s.before = resourceUsage{s.before.cpu + cpu, s.before.bytes + bytes, now.known}
	s.busy += cpu
	work := time.Duration(float64(cpu)/activeCPUShare + float64(bytes)/activeBytesPerSecond*float64(time.Second))
	lack := wall - work
	alive = lack <= 0
	if !alive && now.known && ready() {
		s.starved += lack
		return true
	}
	s.idle = max(0, s.idle+lack)
	if alive {
		s.starved = max(0, s.starved+lack)
	}
	return alive
}

// err is the reason to end the child, if there is one.
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
		return fmt.Errorf("%w in %v: other programs take the processors of this host",
			ErrStarved, s.starved.Round(time.Second))
	}
	return nil
}
