package stages

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cuelight/cuelight/store"
)

// lookout is what the dispatcher knows of one stage's waiting tasks.
type lookout struct {
	due      bool      // something may be waiting
	notUntil time.Time // after a miss: when to look again
	misses   int
	mature   bool      // a time that tasks wait for has come
	nextAt   time.Time // the earliest such time; zero for none
	late     int       // how often in a row what was due could not be made ready
}

const maxMisses = 12

// lookAgain decides, by stage, whether and when to look again. A stage that
// has ready tasks which a claim with slots to spare did not get was caught
// while another process had the rows locked, to claim a sibling stage of the
// same tasks. No further news will come of them, so it goes again, within a
// millisecond or two at first, and leaves it to the sweep after some tries.
func (d *dispatcher) lookAgain(t store.Turn, out store.Turned) {
	got := make([]int, len(d.stages))
	for _, c := range out.Claims {
		got[c.Stage]++
	}
	for i := range d.look {
		l := &d.look[i]
		if !t.Look[i] {
			l.due = l.due || out.Left[i]
			continue
		}
		d.ripen(i, t.Mature[i], out.Next[i])
		l.due = out.Left[i]
		if !out.Left[i] || got[i] >= out.Asked[i] {
			l.misses, l.notUntil = 0, time.Time{}
			continue
		}
		l.misses++
		if l.misses > maxMisses {
			l.due, l.misses = false, 0
			continue
		}
		pause := time.Millisecond << min(l.misses-1, 6)
		l.notUntil = time.Now().Add(pause + time.Duration(rand.Int64N(int64(pause))))
	}
}

// ripen sets the timer of a stage on the earliest time that a task waits for.
// Where that has come and yet the turn could not make the task ready, it is
// tried again, less and less often.
func (d *dispatcher) ripen(stage int, tried bool, next time.Duration) {
	l := &d.look[stage]
	l.mature, l.nextAt = false, time.Time{}
	if next < 0 {
		l.late = 0
		return
	}
	if next > 0 || !tried {
		l.late = 0
	} else {
		l.late = min(l.late+1, 8)
		next = 4 * time.Millisecond << l.late
	}
	l.nextAt = time.Now().Add(next)
}

// sweep makes the slow pass, and makes sure that the database and this process
// have the same idea of which claims are its own.
func (d *dispatcher) sweep(life context.Context) {
	d.sweepAt = time.Now().Add(jitter(d.Runner.Sweep))
	d.trouble.uncertain = true
	if !d.reconciled(life) {
		return
	}
	in := store.Sweep{Worker: d.workerID(), Only: d.Only}
	// After a time without the database all others seem to be silent.
	if d.touch.kept() >= d.GoneAfter {
		in.GoneAfter = d.GoneAfter
	}
	for _, s := range d.stages {
		in.MaxAttempts = append(in.MaxAttempts, s.MaxAttempts)
	}
	ctx, cancel := context.WithTimeout(life, turnTimeout)
	defer cancel()
	out, err := d.Store.Sweep(ctx, in)
	if err != nil {
		d.turnFailed(life, err)
		return
	}
	d.recovered()
	if out.Expired > 0 {
		d.Observe(Event{Kind: Expired, Worker: d.workerID(), Count: out.Expired})
	}
	for i := range d.look {
		d.look[i].due = d.look[i].due || out.Left[i]
		d.ripen(i, true, out.Next[i])
	}
}
