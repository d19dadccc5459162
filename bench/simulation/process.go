package simulation

import (
	"slices"
	"time"
)

// process is one worker process: its dispatcher makes one exchange after the other.
type process struct {
	s          *simulation
	free       [stages]int
	due        [stages]bool // tasks may be ready
	reports    []report
	exchanging bool
	pacer      pacer
}

// report is a stage of a task whose work has ended.
type report struct {
	task  *task
	stage int
}

// wake handles a notification.
func (p *process) wake(stage int) {
	p.due[stage] = true
	p.exchange()
}

// exchange begins the next exchange if one is needed and none is in progress.
func (p *process) exchange() {
	if p.exchanging {
		return
	}
	for _, r := range p.reports {
		p.free[r.stage]++
	}
	reports, claims := p.reports, [stages]bool{}
	p.reports = nil
	needed := len(reports) > 0
	for i := range claims {
		claims[i] = p.due[i] && p.free[i] > 0
		needed = needed || claims[i]
	}
	if !needed {
		return
	}
	p.exchanging = true
	p.s.exchanges++
	p.s.workers.use(p.s.ProcessExchange, func() {
		p.s.after(p.s.Network, func() { p.inDatabase(reports, claims) })
	})
}

// inDatabase is the transaction: its work, and the flush of its commit if it has reports.
func (p *process) inDatabase(reports []report, claims [stages]bool) {
	s := p.s
	cost := time.Duration(0)
	switch {
	case len(reports) > 0 && isOneTask(reports):
		cost = p.pacer.cost(s.Exchange, s.now)
	case len(reports) > 0:
		cost = s.MixedExchange + time.Duration(len(reports))*s.Report
		if s.Rate == 0 { // the contention was measured in drains
			cost += time.Duration(len(reports)) * s.contention() / stages
		}
	case slices.ContainsFunc(s.ready[:], func(tasks []*task) bool { return len(tasks) > 0 }):
		cost = p.pacer.cost(s.ClaimExchange, s.now) - s.EmptyClaim
	default: // another process was faster
		cost = p.pacer.cost(s.EmptyExchange, s.now) - s.EmptyClaim
	}
	var claimed [stages][]*task
	for i, from := range claims {
		if !from {
			continue
		}
		n := min(len(s.ready[i]), p.free[i])
		cost += s.EmptyClaim + time.Duration(n)*s.Claim
		claimed[i], s.ready[i] = s.ready[i][:n], s.ready[i][n:]
		p.free[i] -= n
	}
	s.database.use(cost, func() {
		started := p.complete(reports)
		for i, tasks := range claimed {
			for _, t := range tasks {
				started = append(started, report{t, i})
			}
			p.due[i] = (p.due[i] && !claims[i]) || len(s.ready[i]) > 0
		}
		end := func() {
			s.after(s.Network, func() { p.start(started) })
		}
		if len(reports) > 0 {
			s.disk.flush(end)
		} else {
			end()
		}
	})
}

func isOneTask(reports []report) bool {
	for _, r := range reports {
		if r.task != reports[0].task {
			return false
		}
	}
	return true
}

// complete completes stages, and continues with the next ones while slots are free and no other task is ready there.
func (p *process) complete(reports []report) (started []report) {
	s := p.s
	for _, r := range reports {
		r.task.done[r.stage] = true
		if r.stage == stages-1 {
			s.complete(r.task)
		}
	}
	for _, r := range reports {
		for _, next := range feeds[r.stage] {
			t := r.task
			if t.readyAt[next] > 0 || slices.ContainsFunc(needs[next], func(need int) bool { return !t.done[need] }) {
				continue
			}
			t.readyAt[next] = s.now
			if p.free[next] > 0 && len(s.ready[next]) == 0 {
				p.free[next]--
				started = append(started, report{t, next})
				continue
			}
			s.ready[next] = append(s.ready[next], t)
			p.due[next] = true
		}
	}
	return started
}

func (s *simulation) complete(t *task) {
	t.completed = s.now
	s.completed++
	s.last = s.now
	s.database.use(s.Background, func() {})
}

// start begins the work on claims. Work that takes no time has ended before the next exchange.
func (p *process) start(claims []report) {
	s := p.s
	s.workers.use(time.Duration(len(claims))*s.ParallelAttempt, func() {})
	s.workers.use(time.Duration(len(claims))*s.Attempt, func() {
		for _, r := range claims {
			if r.stage == 0 {
				s.ingestWaits = append(s.ingestWaits, s.now-r.task.readyAt[0])
			}
			work := time.Duration(s.rng.ExpFloat64() * float64(s.Work[r.stage]))
			r.task.worked += work
			if work == 0 {
				p.reports = append(p.reports, r)
				continue
			}
			s.after(work, func() {
				p.reports = append(p.reports, r)
				p.exchange()
			})
		}
		p.exchanging = false
		p.exchange()
	})
}
