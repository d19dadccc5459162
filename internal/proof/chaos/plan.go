package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// workers is the number of worker processes with the database. The last of them is the one
	// behind a network interface.
	workers         = 5
	networkedWorker = workers - 1
	// remoteWorkers are counted after the workers with the database.
	remoteWorkers = 3
	coordinators  = 2
	noWorker      = -1
)

func isRemote(worker int) bool { return worker >= workers }

// workerName names a worker in the output.
func workerName(worker int) string {
	if isRemote(worker) {
		return fmt.Sprintf("remote worker %d", worker-workers+1)
	}
	return fmt.Sprintf("worker %d", worker+1)
}

// coordinatorName names a coordinator, counted from 0, in the output.
func coordinatorName(n int) string { return fmt.Sprintf("coordinator %d", n+1) }

// step is one fault to inject.
type step struct {
	at, duration time.Duration // at: since the first fault may begin
	kind         faultKind
	worker       int // counted from 0, or noWorker
	coordinator  int // of killCoordinator, counted from 0
}

// String describes the step as a line of the plan.
func (s step) String() string { return fmt.Sprintf("%6.1f s  %s", s.at.Seconds(), s.title()) }

// title describes the step without its time.
func (s step) title() string {
	title := string(s.kind)
	switch {
	case s.kind == killCoordinator:
		title += " of " + coordinatorName(s.coordinator)
	case s.worker != noWorker:
		title += " " + workerName(s.worker)
	}
	if s.duration > 0 {
		title += fmt.Sprintf(", %.1f s", s.duration.Seconds())
	}
	return title
}

// name names the fault where faults are counted.
func (s step) name() string {
	if isRemote(s.worker) {
		return "remote " + string(s.kind)
	}
	return string(s.kind)
}

// quota says how many faults of a kind a minute has, and how long they last.
type quota struct {
	kind      faultKind
	perMinute int
	min, max  time.Duration
}

const ms = time.Millisecond

// quotas are those of one minute. Faults for which it is hard to find a time come first.
var quotas = [...]quota{
	{linkDown, 1, 3000 * ms, 12000 * ms},
	{killWorker, 3, 15000 * ms, 15000 * ms}, // by then other workers have its claims
	{killWorker, 3, 1000 * ms, 3000 * ms},   // a service manager starts it again
	{freezeWorker, 3, 1000 * ms, 5000 * ms},
	{blackHole, 1, 5000 * ms, 12000 * ms},
	{dropFromServer, 1, 3000 * ms, 8000 * ms},
	{dropToServer, 1, 3000 * ms, 8000 * ms},
	{holdTraffic, 2, 1000 * ms, 4000 * ms},
	{delayTraffic, 1, 3000 * ms, 8000 * ms},
	{resetConnections, 3, 0, 0},
	{refuseConnections, 1, 2000 * ms, 6000 * ms},
	{endListeners, 2, 0, 0},
	{endPools, 2, 0, 0},
	{endSessions, 1, 0, 0},
	{disableTriggers, 2, 2000 * ms, 6000 * ms},
	{notifyFlood, 1, 1000 * ms, 3000 * ms},
	{notifyBurst, 2, 0, 0},
	{lockRows, 2, 2000 * ms, 6000 * ms},
	{holdSnapshot, 1, 5000 * ms, 15000 * ms},
	{operatorReads, 1, 3000 * ms, 8000 * ms},
	{killDaemon, 2, 1000 * ms, 3000 * ms},
	{killFFmpeg, 3, 3000 * ms, 3000 * ms},
	{freezeDaemon, 1, 1000 * ms, 3000 * ms},
	{killCoordinator, 2, 6000 * ms, 9000 * ms}, // by then its workers are at the other one
	{killCoordinator, 2, 1000 * ms, 3000 * ms},
}

// remoteQuotas are those of the faults of remote workers, which are fewer.
var remoteQuotas = [...]quota{
	{killWorker, 1, 15000 * ms, 15000 * ms},
	{killWorker, 2, 1000 * ms, 3000 * ms},
	{freezeWorker, 2, 1000 * ms, 5000 * ms},
	{blackHole, 1, 3000 * ms, 6000 * ms},
	{dropFromServer, 1, 2000 * ms, 4000 * ms},
	{dropToServer, 1, 2000 * ms, 4000 * ms},
	{holdTraffic, 1, 1000 * ms, 4000 * ms},
	{delayTraffic, 1, 3000 * ms, 8000 * ms},
	{resetConnections, 3, 0, 0},
	{refuseConnections, 1, 1000 * ms, 3000 * ms},
}

// allQuotas returns quotas and then remoteQuotas.
func allQuotas() []quota { return slices.Concat(quotas[:], remoteQuotas[:]) }

// serverFaults come one after the other, in half a minute of their own. Faults of workers would
// not be visible if the server were never available.
var serverFaults = [...]faultKind{restartFast, restartImmediate, killServer, freezeServer}

// plannedFaults are all kinds that a plan may have.
func plannedFaults() []faultKind {
	kinds := append(serverFaults[:len(serverFaults):len(serverFaults)], powerLoss)
	for _, q := range allQuotas() {
		kinds = append(kinds, q.kind)
	}
	kinds = append(kinds, deleteTasks)
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// beyondLease is longer than the lease of a worker with the sweep that follows.
const beyondLease = 46 * time.Second

// plan is a list of steps in the order in which they begin.
type plan []step

// newPlan draws the plan of a seed. All faults end within the duration. The plan depends on
// nothing else, neither on the machine nor on the time.
func newPlan(seed uint64, duration time.Duration) plan {
	p := planner{rand: rand.New(rand.NewPCG(seed, 0))}
	for from := time.Duration(0); from < duration; from += time.Minute {
		p.addMinute(from, min(from+time.Minute, duration))
	}
	d := planner{rand: rand.New(rand.NewPCG(seed, 2))}
	d.addDeletions(duration)
	steps := append(p.steps, d.steps...)
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps
}

// deletionInterval is the average time between the beginnings of two deletions.
const deletionInterval = 8 * time.Second

// addDeletions plans deletions of tasks. They have a planner of their own, so that they change no other step.
func (p *planner) addDeletions(duration time.Duration) {
	for from := time.Duration(0); from < duration; from += deletionInterval {
		s := step{kind: deleteTasks, worker: noWorker}
		s.duration = min(p.between(ms, 2*time.Second)<<p.rand.IntN(3), duration/2)
		s.at = min(p.between(from, from+deletionInterval), duration-s.duration)
		p.steps = append(p.steps, s)
	}
}

// planner draws a plan.
type planner struct {
	rand  *rand.Rand
	steps plan
}

// addMinute plans one minute. Every second minute has no fault of the server, to measure how long
// the recovery from the other faults takes.
func (p *planner) addMinute(from, until time.Duration) {
	minute := from / time.Minute
	if until-from == time.Minute {
		long := [...]faultKind{powerLoss, freezeWorker}
		if minute%4 == 1 {
			long = [...]faultKind{linkDown, blackHole}
		}
		for _, kind := range long {
			p.add(quota{kind, 1, beyondLease, beyondLease}, false, from, from+2*time.Second+beyondLease)
		}
	}
	if minute%2 == 0 {
		p.addServerFaults(from, until)
	}
	if until-from == time.Minute {
		p.add(quota{freezeWorker, 1, beyondLease, beyondLease}, true, from, from+2*time.Second+beyondLease)
	}
	// First one fault of each quota, then the others as far as there is time.
	all := allQuotas()
	for i, q := range all {
		p.add(q, i >= len(quotas), from, until)
	}
	for round := 1; round < 3; round++ {
		for _, i := range p.rand.Perm(len(all)) {
			if q := all[i]; round*int(time.Minute) < q.perMinute*int(until-from) {
				p.add(q, i >= len(quotas), from, until)
			}
		}
	}
}

// between draws a duration in whole milliseconds, which keeps it readable.
func (p *planner) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(p.rand.Int64N(int64((most-least)/ms)+1))*ms
}

// addServerFaults breaks the server in every way, in the first or in the second half of the time.
func (p *planner) addServerFaults(from, until time.Duration) {
	half := (until - from) / 2
	at := from + half/8 + p.between(0, half/8) // faults that last long begin before
	if p.rand.IntN(2) == 1 {
		at += half
	}
	end := min(until, at+half)
	for _, i := range p.rand.Perm(len(serverFaults)) {
		// Most faults are short; the longest takes 8 s.
		duration := min(p.between(0, 2*time.Second)<<p.rand.IntN(3), half/3)
		if serverFaults[i] == freezeServer {
			duration = max(duration, time.Second)
		}
		if duration = min(duration, end-at); duration < 0 {
			break
		}
		p.steps = append(p.steps, step{at: at, duration: duration, kind: serverFaults[i], worker: noWorker})
		at += duration + p.between(2*time.Second, 3500*ms)
	}
}

// add finds a time and a worker, with the database or remote, for one fault. A short or crowded run
// may have no room for it.
func (p *planner) add(q quota, ofRemote bool, from, until time.Duration) {
	for range 60 {
		s := step{kind: q.kind, worker: noWorker}
		s.duration = p.between(q.min, min(q.max, (until-from)/4))
		if from+s.duration > until {
			continue
		}
		s.at = p.between(from, until-s.duration)
		switch {
		case q.kind == killCoordinator:
			s.coordinator = p.rand.IntN(coordinators)
		case ofRemote:
			s.worker = workers + p.rand.IntN(remoteWorkers)
		case q.kind == powerLoss, q.kind == linkDown:
			s.worker = networkedWorker
		case q.kind.needsProxy():
			s.worker = p.rand.IntN(networkedWorker)
		case q.kind.needsWorker():
			s.worker = p.rand.IntN(workers)
		}
		if p.fits(s) {
			p.steps = append(p.steps, s)
			return
		}
	}
}

// recoveryTime is how long a disabled worker may take to work again.
const recoveryTime = time.Second

// fits reports whether the step can be added: faults that would undo each other do not overlap,
// and at any time at least one worker with the database and one remote worker have no fault, and
// one coordinator runs.
func (p *planner) fits(s step) bool {
	disabled := make(map[int]bool) // workers of the same kind
	for _, other := range p.steps {
		if other.at > s.at+s.duration+recoveryTime || s.at > other.at+other.duration+recoveryTime {
			continue
		}
		switch {
		case s.kind.disablesWorker() && other.kind.disablesWorker() && s.worker == other.worker,
			s.kind.needsProxy() && other.kind.needsProxy() && s.worker == other.worker,
			s.kind.needsDaemon() && other.kind.needsDaemon(),
			s.kind == other.kind && !s.kind.needsWorker():
			return false
		case other.kind.disablesWorker() && isRemote(other.worker) == isRemote(s.worker):
			disabled[other.worker] = true
		}
	}
	size := workers
	if isRemote(s.worker) {
		size = remoteWorkers
	}
	return !s.kind.disablesWorker() || len(disabled) < size-1
}
