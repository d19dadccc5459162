package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// faultKind is a kind of fault, by the name that is printed.
type faultKind string

const (
	// Faults of one worker, with the database or remote.
	killWorker       faultKind = "kill"         // SIGKILL; started again afterwards
	powerLoss        faultKind = "power-loss"   // SIGKILL while the network hides it
	freezeWorker     faultKind = "freeze"       // SIGSTOP, then SIGCONT
	blackHole        faultKind = "black-hole"   // nothing arrives, and then all connections are reset
	holdTraffic      faultKind = "hold-traffic" // everything arrives late
	resetConnections faultKind = "reset-connections"
	// Faults of the server.
	restartServer    faultKind = "restart"
	killServer       faultKind = "kill-server"
	freezeServer     faultKind = "freeze-server"     // SIGSTOP to all its processes
	failoverKill     faultKind = "failover-kill"     // the primary is killed
	failoverReadOnly faultKind = "failover-readonly" // the primary refuses to write
	// Faults in the database.
	endListeners  faultKind = "end-listeners"  // pg_terminate_backend: notifications are lost
	endSessions   faultKind = "end-sessions"   // of all
	cancelQueries faultKind = "cancel-queries" // pg_cancel_backend, over and over
	lockRows      faultKind = "lock-rows"      // of many tasks
	holdSnapshot  faultKind = "hold-snapshot"  // an old one
	deleteTasks   faultKind = "delete-tasks"   // restores and purges some of them afterwards
	// Faults of the daemon that publishes videos, and of the coordinators of the remote workers.
	killDaemon      faultKind = "kill-daemon"
	freezeDaemon    faultKind = "freeze-daemon"
	killCoordinator faultKind = "kill-coordinator" // SIGKILL; started again afterwards
)

const (
	// workers is the number of worker processes with the database.
	workers = 5
	// remoteWorkers are counted after the workers with the database, and their coordinators after them.
	remoteWorkers    = 3
	firstCoordinator = workers + remoteWorkers
	coordinators     = 2
	noWorker         = -1
)

func isRemote(worker int) bool { return worker >= workers }

// workerName names a worker, or a coordinator, in the output.
func workerName(worker int) string {
	if worker >= firstCoordinator {
		return fmt.Sprintf("coordinator %d", worker-firstCoordinator+1)
	}
	if isRemote(worker) {
		return fmt.Sprintf("remote worker %d", worker-workers+1)
	}
	return fmt.Sprintf("worker %d", worker+1)
}

// step is one fault to inject.
type step struct {
	at, duration time.Duration // at: since the first fault may begin
	kind         faultKind
	worker       int // or a coordinator: counted from 0, or noWorker
}

// String describes the step without its time.
func (s step) String() string {
	title := string(s.kind)
	if s.worker != noWorker {
		title += " of " + workerName(s.worker)
	}
	if s.duration > 0 {
		title += fmt.Sprintf(", %.1f s", s.duration.Seconds())
	}
	return title
}

const ms = time.Millisecond

// track is a list of faults of which there is one at a time, so that they do not undo each other.
type track struct {
	faults  []faultRange
	pause   time.Duration // between two faults, on average
	workers []int         // those that may have the faults, or coordinators
}

// faultRange says how long faults of a kind last.
type faultRange struct {
	kind     faultKind
	min, max time.Duration
}

// serverTrack is for the first or the last third of every second minute. How long a recovery takes would not be visible if
// the server were never available.
var serverTrack = track{pause: 2 * time.Second, faults: []faultRange{
	{restartServer, 0, 3 * time.Second}, {killServer, 0, 3 * time.Second}, {freezeServer, time.Second, 3 * time.Second},
}}

// kills and otherFaults are those of tracks of workers.
var kills = []faultRange{
	{killWorker, 1000 * ms, 3000 * ms},   // a service manager starts it again
	{killWorker, 15000 * ms, 15000 * ms}, // by then other workers have its claims
}

var otherFaults = []faultRange{
	{powerLoss, 3000 * ms, 8000 * ms},
	{freezeWorker, 1000 * ms, 5000 * ms},
	{blackHole, 3000 * ms, 8000 * ms},
	{holdTraffic, 1000 * ms, 4000 * ms},
	{resetConnections, 0, 0},
}

// tracks are for all the time. At any time a worker with the database, a remote worker and a coordinator have no fault.
var tracks = []track{
	{workers: []int{0}, faults: kills, pause: 2 * time.Second},
	{workers: []int{1, 2}, faults: otherFaults, pause: 2 * time.Second},
	{workers: []int{workers, workers + 1}, faults: slices.Concat(kills, otherFaults), pause: 2 * time.Second},
	{workers: []int{firstCoordinator, firstCoordinator + 1}, pause: 10 * time.Second, faults: []faultRange{
		{killCoordinator, 6000 * ms, 9000 * ms}, // by then its workers are at the other one
		{killCoordinator, 1000 * ms, 3000 * ms},
	}},
	{pause: 6 * time.Second, faults: []faultRange{
		{killDaemon, 1000 * ms, 3000 * ms}, {freezeDaemon, 1000 * ms, 3000 * ms},
	}},
	// Locks and cancelled queries delay recoveries: there is time without them.
	{pause: 6 * time.Second, faults: []faultRange{
		{endListeners, 0, 0}, {endSessions, 0, 0}, {cancelQueries, 500 * ms, 2000 * ms},
		{lockRows, 2000 * ms, 6000 * ms}, {holdSnapshot, 3000 * ms, 8000 * ms},
	}},
	{pause: 3 * time.Second, faults: []faultRange{{deleteTasks, 0, 8 * time.Second}}},
}

// beyondLease is longer than the lease of a worker with the sweep that follows. longWorkers have a fault that lasts so
// long in every minute, of one of the kinds.
const beyondLease = 46 * time.Second

var (
	longWorkers = []int{3, 4, workers + 2}
	longFaults  = []faultKind{freezeWorker, powerLoss, blackHole}
)

// plan is a list of steps in the order in which they begin.
type plan []step

// newPlan draws the plan of a seed. All faults end within the duration. The plan depends on
// nothing else, neither on the machine nor on the time.
func newPlan(seed uint64, duration time.Duration) (p plan) {
	for i, t := range tracks {
		p = append(p, t.draw(rand.New(rand.NewPCG(seed, uint64(i))), 0, duration)...)
	}
	r := rand.New(rand.NewPCG(seed, uint64(len(tracks))))
	for from := time.Duration(0); from < duration; from += time.Minute {
		minute, end := int(from/time.Minute), min(from+time.Minute, duration)
		if minute%2 == 0 {
			third := (end - from) / 3
			start := from + time.Duration(2*r.IntN(2))*third
			p = append(p, serverTrack.draw(r, start, start+third)...)
		}
		for i, worker := range longWorkers {
			s := step{at: from + between(r, time.Second, 10*time.Second), duration: beyondLease, worker: worker}
			s.kind = longFaults[(minute+i)%len(longFaults)]
			if s.at+s.duration <= end {
				p = append(p, s)
			}
		}
	}
	slices.SortStableFunc(p, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return p
}

// draw draws the faults of a track in that time, each once before any comes again.
func (t track) draw(r *rand.Rand, from, until time.Duration) (steps plan) {
	longest := (until - from) / 4
	for at := from + between(r, 0, t.pause); ; {
		for _, i := range r.Perm(len(t.faults)) {
			f := t.faults[i]
			s := step{at: at, kind: f.kind, worker: noWorker, duration: min(between(r, f.min, f.max), longest)}
			if at += s.duration; at > until {
				return steps
			}
			at += between(r, t.pause/2, 3*t.pause/2)
			if t.workers != nil {
				s.worker = t.workers[r.IntN(len(t.workers))]
			}
			steps = append(steps, s)
		}
	}
}

// between draws a duration in whole milliseconds, which keeps it readable.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64((most-least)/ms)+1))*ms
}
