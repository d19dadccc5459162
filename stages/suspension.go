package stages

import (
	"maps"
	"time"

	"github.com/cuelight/cuelight/store"
)

// suspension stops claims of a stage for a while, because an attempt was postponed: the
// problem is this host's, and every task would meet it.
//
// After a pause one task is tried; see [pauseAfter]. The first attempt that ends
// otherwise ends the suspension. A lasting problem thus costs one claim now and then, not
// one per waiting task.
type suspension struct {
	since     time.Time // zero: not suspended
	until     time.Time // no claim before
	untilIdle bool      // no claim while attempts run that began before, either
}

func (s *suspension) active() bool { return !s.since.IsZero() }

// suspendedSlots is how many claims a suspended queue may make.
func (d *dispatcher) suspendedSlots(queue int) int {
	q := &d.queues[queue]
	held := q.busy + len(q.prefetched)
	if held >= q.slots || time.Now().Before(q.until) || q.untilIdle && held > 0 {
		return 0
	}
	for _, a := range d.p.attempts.all() {
		isOlder := !a.started.IsZero() && a.started.Before(q.since)
		if d.queueOf(a.claim) == queue && !isOlder && !d.reports.contains(a.claim.Token) {
			return 0 // it is the try
		}
	}
	return 1
}

// firstPause is the first pause: the problem may be short.
const firstPause = time.Second

// pauseAfter is how long to wait when a problem has lasted for a while: a quarter of that, so
// that the wait after its end is short where the problem was, and tries get rare where it
// lasts for hours.
func pauseAfter(lasted, longest time.Duration) time.Duration {
	return jitter(min(max(lasted/4, firstPause), longest))
}

// updateSuspension starts or ends a suspension after an attempt has ended.
func (d *dispatcher) updateSuspension(q *stageQueue, f *finished) {
	s, key := &q.suspension, postponedKey{f.claim.Task, f.claim.Part}
	if f.suspends != nil {
		asked := max(f.suspends.after, 0)
		d.suspend(q, f, asked)
		f.report.RetryIn = q.postponed.add(key, s.since, max(asked, f.took))
		return
	}
	switch f.kind {
	case StageCompleted, PartCompleted, StageDivided, AttemptFailed, StageDead:
		delete(q.postponed, key)
		if s.active() && f.started.After(s.since) {
			*s = suspension{}
			q.wake(false, nil)
			d.p.observe(Event{Kind: StageResumed, Stage: f.stage.Name})
		}
	}
}

// suspend starts a suspension, or extends it after a failed try. Attempts that were
// running when it started do not count.
func (d *dispatcher) suspend(q *stageQueue, f *finished, longest time.Duration) {
	s, now := &q.suspension, time.Now()
	s.untilIdle = f.suspends.untilIdle
	switch {
	case !s.active():
		s.since = now
		d.releasePrefetched(q, errSuspended)
		d.p.observe(Event{Kind: StageSuspended, Stage: f.stage.Name, Err: f.err})
	case f.started.Before(s.until):
		return
	}
	s.until = now.Add(pauseAfter(now.Sub(s.since), longest))
}

// postponed are tasks of a stage, or parts, whose attempts this process postponed. They are
// remembered beyond the suspension, until an attempt ends otherwise: a task that meets a
// problem again and again while others do not would otherwise be tried, and suspend the
// stage, every second.
type postponed map[postponedKey]postponement

type postponedKey struct {
	task store.ID
	part int
}

type postponement struct {
	since   time.Time // the start of the suspension in which the first attempt in a row ended
	expires time.Time // an attempt after this is the first again
}

// add returns how long a task waits after an attempt that was postponed in a suspension.
func (p *postponed) add(key postponedKey, suspended time.Time, longest time.Duration) time.Duration {
	now := time.Now()
	maps.DeleteFunc(*p, func(_ postponedKey, one postponement) bool { return now.After(one.expires) })
	if *p == nil {
		*p = make(postponed)
	}
	one, again := (*p)[key]
	if !again {
		one.since = suspended
	}
	one.expires = now.Add(2 * longest)
	(*p)[key] = one
	return pauseAfter(now.Sub(one.since), longest)
}
