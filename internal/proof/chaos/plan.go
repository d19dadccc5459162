package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// workers is how many worker processes there are. The last is the one behind a
// network interface.
const (
	workers   = 5
	networked = workers - 1
)

// kind is what is done. Its text is how it is called in what is printed.
type kind string

const (
	// To a worker.
	kill   kind = "kill"       // SIGKILL; started again afterwards
	power  kind = "power"      // SIGKILL behind a black hole, so that nobody hears of it
	freeze kind = "freeze"     // SIGSTOP, then SIGCONT
	link   kind = "link"       // its network interface is shut down
	hole   kind = "black-hole" // what is sent either way is swallowed, and nothing closed
	deaf   kind = "deaf"       // what the server says is swallowed
	dumb   kind = "dumb"       // what the worker says is swallowed
	hold   kind = "hold"       // everything arrives, but only afterwards
	delay  kind = "delay"      // everything arrives late
	cut    kind = "cut"        // all connections are reset
	refuse kind = "refuse"     // nobody listens at the server's address
	// To the server.
	fast      kind = "restart-fast"
	immediate kind = "restart-immediate"
	crash     kind = "restart-killed"
	pauseAll  kind = "server-frozen" // SIGSTOP to all its processes
	// To the database.
	listeners kind = "end-listeners"  // pg_terminate_backend
	pools     kind = "end-pools"      // the others
	sessions  kind = "end-sessions"   // all
	triggers  kind = "triggers-off"   // alter table … disable trigger user
	flood     kind = "flood"          // of notifications, one by one
	burst     kind = "burst"          // of notifications, in one transaction
	rows      kind = "lock-rows"      // of many tasks
	snapshot  kind = "old-snapshot"   // is held open
	reads     kind = "operator-reads" // what people look at, over and over
	// To the daemon that publishes videos.
	killDaemon   kind = "kill-daemon"
	killFFmpeg   kind = "kill-ffmpeg"
	freezeDaemon kind = "freeze-daemon"
)

// step is one thing to be done.
type step struct {
	at, lasts time.Duration // since the torments began
	kind      kind
	worker    int // counted from 0; -1 where it is not about one
}

func (s step) String() string {
	who := ""
	if s.worker >= 0 {
		who = fmt.Sprintf(" worker %d", s.worker+1)
	}
	return fmt.Sprintf("%6.1f s  %s%s, %.1f s", s.at.Seconds(), s.kind, who, s.lasts.Seconds())
}

// card is a kind of step, and how many of them there are to be in a minute.
type card struct {
	kind        kind
	often       int
	least, most time.Duration
}

const ms = time.Millisecond

// deck is a minute's torments, those that are hard to find room for first.
var deck = [...]card{
	{link, 1, 3000 * ms, 12000 * ms},
	{kill, 3, 15000 * ms, 15000 * ms}, // by then others have what it held
	{kill, 3, 1000 * ms, 3000 * ms},   // as a service manager does it
	{freeze, 3, 1000 * ms, 5000 * ms},
	{hole, 1, 5000 * ms, 12000 * ms},
	{deaf, 1, 3000 * ms, 8000 * ms},
	{dumb, 1, 3000 * ms, 8000 * ms},
	{hold, 2, 1000 * ms, 4000 * ms},
	{delay, 1, 3000 * ms, 8000 * ms},
	{cut, 3, 0, 0},
	{refuse, 1, 2000 * ms, 6000 * ms},
	{listeners, 2, 0, 0},
	{pools, 2, 0, 0},
	{sessions, 1, 0, 0},
	{triggers, 2, 2000 * ms, 6000 * ms},
	{flood, 1, 1000 * ms, 3000 * ms},
	{burst, 2, 0, 0},
	{rows, 2, 2000 * ms, 6000 * ms},
	{snapshot, 1, 5000 * ms, 15000 * ms},
	{reads, 1, 3000 * ms, 8000 * ms},
	{killDaemon, 2, 1000 * ms, 3000 * ms},
	{killFFmpeg, 3, 3000 * ms, 3000 * ms},
	{freezeDaemon, 1, 1000 * ms, 3000 * ms},
}

// serverKinds come one after the other, in a season of their own: what is about
// the workers alone could not be seen if the server were never well.
var serverKinds = [...]kind{fast, immediate, crash, pauseAll}

// longTorment is longer than the lease of the worker that it happens to, with
// the sweep that follows.
const longTorment = 46 * time.Second

// plan is what is done, in the order in which it begins.
type plan []step

// planner draws a plan.
type planner struct {
	rand  *rand.Rand
	steps plan
}

// newPlan draws the plan that belongs to the seed. Everything ends within the
// duration, and nothing else decides, neither the machine nor the time.
func newPlan(seed uint64, duration time.Duration) plan {
	p := planner{rand: rand.New(rand.NewPCG(seed, 0))}
	for from := time.Duration(0); from < duration; from += time.Minute {
		p.minute(from, min(from+time.Minute, duration))
	}
	slices.SortStableFunc(p.steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return p.steps
}

// minute plans one. In every second one the server itself is left alone, so that
// it can be seen how long everything else takes.
func (p *planner) minute(from, until time.Duration) {
	number := from / time.Minute
	even := number%2 == 0
	if until-from == time.Minute {
		long := [...]kind{power, freeze}
		if number%4 == 1 {
			long = [...]kind{link, hole}
		}
		for _, k := range long {
			p.place(card{k, 1, longTorment, longTorment}, from, from+2*time.Second+longTorment)
		}
	}
	if even {
		p.season(from, until)
	}
	// First one of each, then the others, as far as there is room.
	for _, c := range deck {
		p.place(c, from, until)
	}
	for round := 1; round < 3; round++ {
		for _, i := range p.rand.Perm(len(deck)) {
			if c := deck[i]; round*int(time.Minute) < c.often*int(until-from) {
				p.place(c, from, until)
			}
		}
	}
}

// between draws a time, in whole milliseconds so that it can be read.
func (p *planner) between(least, most time.Duration) time.Duration {
	if most <= least {
		return least
	}
	return least + time.Duration(p.rand.Int64N(int64((most-least)/ms)+1))*ms
}

// season breaks the server in every way, in the first half, more or less, or in
// the second.
func (p *planner) season(from, until time.Duration) {
	half := (until - from) / 2
	at := from + half/8 + p.between(0, half/8) // what takes long begins before
	if p.rand.IntN(2) == 1 {
		at += half
	}
	end := min(until, at+half)
	for _, i := range p.rand.Perm(len(serverKinds)) {
		// Most of the time it is back soon; the longest is 8 s.
		lasts := min(p.between(0, 2*time.Second)<<p.rand.IntN(3), half/3)
		if serverKinds[i] == pauseAll {
			lasts = max(lasts, time.Second)
		}
		if lasts = min(lasts, end-at); lasts < 0 {
			break
		}
		p.steps = append(p.steps, step{at, lasts, serverKinds[i], -1})
		at += lasts + p.between(2*time.Second, 3500*ms)
	}
}

// place finds a time, and a worker, for a card. Where there is none, in a short
// or crowded run, it is left out.
func (p *planner) place(c card, from, until time.Duration) {
	for range 60 {
		s := step{kind: c.kind, worker: -1}
		s.lasts = p.between(c.least, min(c.most, (until-from)/4))
		if from+s.lasts > until {
			continue
		}
		s.at = p.between(from, until-s.lasts)
		switch {
		case c.kind == power, c.kind == link:
			s.worker = networked
		case c.kind.byProxy():
			s.worker = p.rand.IntN(networked)
		case c.kind.ofWorker():
			s.worker = p.rand.IntN(workers)
		}
		if p.fits(s) {
			p.steps = append(p.steps, s)
			return
		}
	}
}

// byProxy: a step that is done by the proxy between a worker and the server.
func (k kind) byProxy() bool {
	return slices.Contains([]kind{hole, deaf, dumb, hold, delay, cut, refuse}, k)
}

// disables: a step that keeps a worker from working.
func (k kind) disables() bool {
	return slices.Contains([]kind{kill, power, freeze, link, hole, deaf, dumb, refuse}, k)
}

func (k kind) ofWorker() bool { return k.disables() || k.byProxy() }

func (k kind) ofDaemon() bool {
	return k == killDaemon || k == killFFmpeg || k == freezeDaemon
}

// aftermath is how long what was disabled may take to work again.
const aftermath = time.Second

// fits: what would undo each other does not come together, and there is always
// one worker to whom nothing happens.
func (p *planner) fits(s step) bool {
	disabled := make(map[int]bool)
	for _, other := range p.steps {
		if other.at > s.at+s.lasts+aftermath || s.at > other.at+other.lasts+aftermath {
			continue
		}
		switch {
		case s.kind.disables() && other.kind.disables() && s.worker == other.worker,
			s.kind.byProxy() && other.kind.byProxy() && s.worker == other.worker,
			s.kind.ofDaemon() && other.kind.ofDaemon(),
			s.kind == other.kind && !s.kind.ofWorker():
			return false
		case other.kind.disables():
			disabled[other.worker] = true
		}
	}
	return !s.kind.disables() || len(disabled) < workers-1
}
