package stages

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// lookout is what the dispatcher knows of one stage's waiting tasks.
type stageQueue struct {
	due      bool      // something may be waiting
	notUntil time.Time // after a miss: when to look again
	misses   int
	mature   bool            // a time that tasks wait for has come
	nextAt   time.Time       // the earliest such time; zero for none
	late     int             // how often in a row what was due could not be made ready
	after    engine.Position // where to go on, as there was more than slots; zero for the beginning
	aged     []store.ID      // what the latest sweep found to be claimed before all others
	backAt   time.Time       // when to look at the beginning again all the same
	woken    bool            // due only because of news: nothing was waiting before

	suspectAt time.Time // the sweep saw something nobody was woken for; zero for not
	missed    bool      // due only because of the sweep, or for want of news
}

// wake notes news; free says that there are slots for it.
func (l *stageQueue) wake(free bool) {
	l.woken = free && (l.woken || !l.due)
	l.due, l.misses, l.notUntil = true, 0, time.Time{}
	l.suspectAt, l.missed = time.Time{}, false
	l.after = engine.Position{}
}

// come notes what has come due by the clock.
func (l *stageQueue) come(now time.Time) {
	if !l.nextAt.IsZero() && !now.Before(l.nextAt) {
		l.due, l.mature, l.nextAt, l.notUntil = true, true, time.Time{}, time.Time{}
	}
	if !l.suspectAt.IsZero() && !now.Before(l.suspectAt) {
		l.missed = l.missed || !l.due
		l.due, l.suspectAt = true, time.Time{}
	}
}

// guess makes every stage due although there is no news, because none comes in.
func (d *dispatcher) markAllReady() {
	for i := range d.queues {
		if l := &d.queues[i]; !l.due {
			l.due, l.missed = true, true
		}
	}
}

// woken says, by stage, that a turn looked there at the first news in a while, so
// that what it found had to wait for nothing else.
func (d *dispatcher) woken(t engine.ExchangeRequest) []bool {
	woken := make([]bool, len(d.queues))
	for i := range d.queues {
		woken[i] = t.ClaimFrom[i] && d.queues[i].woken
	}
	return woken
}

// wakeLate is how long after the sweep has seen a task the news of it may come.
const wakeLate = time.Second

const maxMisses = 12

// placeShare is how many times as long as a turn that looks at the beginning others
// go on from a place.
const placeShare = 20

// lookAgain decides, by stage, whether and when to look again. A stage that
// has ready tasks which a claim with slots to spare did not get was caught
// while another process had the rows locked, to claim a sibling stage of the
// same tasks. No further news will come of them, so it goes again, within a
// millisecond or two at first, and leaves it to the sweep after some tries.
//
// Where there is more than there are slots, it goes on from place to place, until
// a claim falls short or there is other news: whoever begins at the beginning goes
// past everything that was claimed since the last vacuum. There may be tasks of which
// no news comes there, too: their rows were locked just then. So it looks there again
// after a while, which is longer the longer such a turn takes.
func (d *dispatcher) updateQueues(t engine.ExchangeRequest, out engine.ExchangeResult, took time.Duration) {
	for i := range d.queues {
		l := &d.queues[i]
		l.woken = false
		if out.NewlyReady[i] {
			l.after = engine.Position{}
		}
		l.aged = l.aged[len(t.Aged[i]):]
		if !t.ClaimFrom[i] {
			l.due = l.due || out.MoreReady[i]
			if out.NewlyReady[i] {
				l.misses, l.notUntil = 0, time.Time{}
			}
			continue
		}
		all, enough := t.After[i] == engine.Position{}, out.Granted[i] >= out.Requested[i]
		if all {
			d.scheduleNext(i, t.PromoteDue[i], out.NextDue[i])
			l.backAt = time.Now().Add(placeShare * took)
		}
		l.due = out.MoreReady[i] || !all
		if l.missed && out.Granted[i] > 0 {
			d.Observe(Event{Kind: WakeMissed, Worker: d.workerID(), Stage: d.stages[i].Name, Count: out.Granted[i]})
		}
		l.missed = l.missed && l.due
		l.after = engine.Position{}
		switch {
		case !l.due || !enough || out.NewlyReady[i]:
		case out.Requested[i] == 0:
			l.after = t.After[i]
		default:
			l.after = out.LastPosition[i]
		}
		if !l.due || enough || !all {
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
func (d *dispatcher) scheduleNext(stage int, tried bool, next time.Duration) {
	l := &d.queues[stage]
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
	d.sweepAt = time.Now().Add(jitter(d.Runner.SweepInterval))
	d.outage.uncertain = true
	if !d.reconcile(life) {
		return
	}
	ctx, cancel := d.exchangeContext(life)
	defer cancel()
	out, err := d.sweepOnce(ctx)
	d.observeLost(out.ExpiredWorkers)
	d.observeOpenTransactions(out.OpenTransactions)
	if err != nil {
		d.sweepAt = time.Now().Add(jitter(min(d.Runner.SweepInterval, sweepAgain)))
		d.exchangeFailed(life, err)
		return
	}
	d.databaseAnswered()
	signal(d.wrote, out.ExpiredClaims > 0)
	if out.ExpiredClaims > 0 {
		d.Observe(Event{Kind: AttemptsExpired, Worker: d.workerID(), Count: out.ExpiredClaims})
	}
	if out.RowsLocked {
		d.sweepAt = time.Now().Add(jitter(min(d.Runner.SweepInterval, sweepAgain)))
	}
	for i := range d.queues {
		d.scheduleNext(i, true, out.NextDue[i])
		d.expectWake(i, out.MoreReady[i])
		if out.Aged != nil {
			d.queues[i].aged = out.Aged[i]
			d.queues[i].due = d.queues[i].due || len(out.Aged[i]) > 0
		}
		d.queues[i].after = engine.Position{}
	}
	d.swept = true
}

func (d *dispatcher) sweepOnce(ctx context.Context) (engine.SweepResult, error) {
	if err := d.reapPredecessors(ctx); err != nil {
		return engine.SweepResult{}, err
	}
	in := engine.SweepRequest{Worker: d.workerID(), Credit: d.contact.allowance(d.Lease), ExpectedClock: d.contact.expected(), OnlyTasks: d.OnlyTasks}
	if d.OnlyTasks == nil {
		in.AgeAfter = d.AgeAfter
	}
	for _, s := range d.stages {
		in.MaxAttempts = append(in.MaxAttempts, s.MaxAttempts)
	}
	return d.Backend.Sweep(ctx, in)
}

// sweepAgain is when to sweep again where something was in the way.
const sweepAgain = 250 * time.Millisecond

// suspect takes in that the sweep saw something to claim. At first that is what
// there was before this process. Later, whoever was awake should have been told
// of it; but the news may just be on its way.
func (d *dispatcher) expectWake(stage int, left bool) {
	l := &d.queues[stage]
	switch {
	case !left || l.due:
	case !d.swept:
		l.due = true
	default:
		l.suspectAt = time.Now().Add(wakeLate)
	}
}

// succeed gives up, in its first sweep, the workers that were on this machine
// before this process and are certainly dead, so that their work goes on at once.
func (d *dispatcher) reapPredecessors(ctx context.Context) error {
	if d.swept {
		return nil
	}
	me, self := currentProcess(), d.self()
	all, err := d.Backend.Workers(ctx, false)
	if err != nil {
		return err
	}
	var dead []store.ID
	for _, w := range all {
		if w.ID != d.workerID() && me.hasOutlived(self.Host, w) {
			dead = append(dead, w.ID)
		}
	}
	if len(dead) == 0 {
		return nil
	}
	lost, err := d.Backend.ExpireWorkers(ctx, dead)
	d.observeLost(lost)
	return err
}

// unended tells, once for each, of workers whose transactions nobody here may end.
func (d *dispatcher) observeOpenTransactions(workers []store.ID) {
	for _, id := range workers {
		if !d.openTransactions[id] {
			d.openTransactions[id] = true
			d.Observe(Event{Kind: TransactionLeftOpen, Worker: d.workerID(), Gone: id})
		}
	}
}

func (d *dispatcher) observeLost(workers []store.ID) {
	signal(d.wrote, len(workers) > 0)
	for _, id := range workers {
		d.Observe(Event{Kind: WorkerLost, Worker: d.workerID(), Gone: id})
	}
}
