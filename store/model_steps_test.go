package store_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// steps returns what may happen, and how often. Each step makes the same call to the model
// and to the store, and compares the results. The test compares the tables after each step.
func (p *simulation) steps() []step {
	all := []step{
		{10, p.submit},
		{2, p.submitAgain},
		{2, p.submitAndRollBack},
		{60, p.exchange},
		{4, p.makeDue},
		{6, p.heartbeat},
		{5, p.missHeartbeats},
		{8, p.sweep},
		{2, p.deregister},
		{2, p.expireWorker},
		{6, p.restartWorker},
		{3, p.cancelOne},
		{2, p.overrideSome},
		{1, p.deleteOne},
		{2, p.changePriority},
		{4, p.read},
	}
	if !p.noRetries {
		all = append(all, step{5, p.retryOne}, step{1, p.retryMany})
	}
	return all
}

func (p *simulation) chance(percent int) bool { return p.rng.IntN(100) < percent }

func pickOne[T any](p *simulation, all []T) T { return all[p.rng.IntN(len(all))] }

func (p *simulation) anyWorker() *modelWorker { return pickOne(p, p.workers) }

// anyTask returns a random task, in three of a hundred calls one that does not exist.
func (p *simulation) anyTask() *modelTask {
	if len(p.model.tasks) == 0 || p.chance(3) {
		return &modelTask{id: store.ID{1}, name: "unknown"}
	}
	return pickOne(p, p.model.tasks)
}

func (p *simulation) newSubmission() (string, store.Submission) {
	p.taskCount++
	name := fmt.Sprint("t", p.taskCount)
	sub := store.Submission{Source: name, RequestID: "r" + name}
	if p.chance(20) {
		sub.Priority = int16(p.rng.IntN(3) - 1)
	}
	if p.chance(10) {
		sub.NotBefore = time.Now().Add(time.Hour)
	}
	return name, sub
}

// submit keeps about ten tasks unfinished.
func (p *simulation) submit() {
	open := 0
	for _, t := range p.model.tasks {
		if p.model.isUnfinished(t) {
			open++
		}
	}
	if open >= 10 {
		return
	}
	name, sub := p.newSubmission()
	p.logStep("submit %s, priority %d, later %t", name, sub.Priority, !sub.NotBefore.IsZero())
	r, err := p.Submit(p.t.Context(), sub)
	p.must(err)
	if r.Existed || p.model.task(r.ID) != nil {
		p.fatalf("the receipt of a new task is %+v", r)
	}
	p.model.add(r.ID, name, sub)
	p.committed = append(p.committed, sub.RequestID)
}

func (p *simulation) submitAgain() {
	t := p.anyTask()
	if t.request == "" {
		return
	}
	p.logStep("submit %s twice", t.name)
	r, err := p.Submit(p.t.Context(), store.Submission{Source: t.name, Priority: 9, RequestID: t.request})
	p.must(err)
	if !r.Existed || r.ID != t.id {
		p.fatalf("submitted twice, %s has the receipt %+v", t.name, r)
	}
}

func (p *simulation) submitAndRollBack() {
	_, sub := p.newSubmission()
	p.logStep("submit %s and roll back", sub.Source)
	rollBack := errors.New("roll back")
	err := pgx.BeginFunc(p.t.Context(), p.pool, func(tx pgx.Tx) error {
		_, err := p.WithTx(tx).Submit(p.t.Context(), sub)
		p.must(err)
		return rollBack
	})
	if !errors.Is(err, rollBack) {
		p.fatalf("%v", err)
	}
	p.rolledBack = append(p.rolledBack, sub.RequestID)
}

// makeDue makes some stages due that wait for a time.
func (p *simulation) makeDue() {
	for _, t := range p.model.tasks {
		for i := range t.stages {
			if t.stages[i].wait == waiting && p.chance(50) {
				p.logStep("%s of %s becomes due", p.model.stages[i], t.name)
				p.exec("update PREFIX_steps set run_at = now() where task_id = $1 and stage = $2 and part = 0",
					t.id, p.model.stages[i])
				if len(p.model.needs[i]) == 0 {
					p.exec("update PREFIX_tasks set scheduled_at = null where id = $1", t.id)
					t.scheduled = false
				}
				t.stages[i].wait = waitDue
			}
			for n, s := range t.stages[i].parts {
				if s.wait == waiting && p.chance(50) {
					p.logStep("part %d of %s of %s becomes due", n+1, p.model.stages[i], t.name)
					p.exec("update PREFIX_steps set run_at = now() where task_id = $1 and stage = $2 and part = $3",
						t.id, p.model.stages[i], n+1)
					s.wait = waitDue
				}
			}
		}
	}
}

// restartWorker registers a lost or stopped worker again, with a new id.
func (p *simulation) restartWorker() {
	for i, w := range p.workers {
		if !w.alive() {
			p.workers[i] = p.register(w.name)
			return
		}
	}
}

func (p *simulation) register(name string) *modelWorker {
	id, err := modelRegister(p.t.Context(), p.Engine)
	p.must(err)
	w := &modelWorker{id: id, name: name}
	p.logStep("%s registers", name)
	p.model.workers = append(p.model.workers, w)
	return w
}

func (p *simulation) heartbeat() {
	w := p.anyWorker()
	claims := p.someClaims(8)
	p.logStep("%s sends a heartbeat with %d claims", w.name, len(claims))
	checkUnchanged := p.checkUnchangedRows()
	lost, err := modelHeartbeat(p.t.Context(), p.Engine, w.id, claims)
	if !w.alive() {
		if !errors.Is(err, store.ErrWorkerUnknown) {
			p.fatalf("the heartbeat of %s, which is lost or stopped, returned %v", w.name, err)
		}
		return
	}
	p.must(err)
	w.missedHeartbeats = false
	p.compareIDs("lost claims", lost, p.lostClaims(claims))
	checkUnchanged()
}

// missHeartbeats makes the last heartbeat of a worker old, or one of a wrong clock, and
// sometimes its claims old, too.
func (p *simulation) missHeartbeats() {
	w := p.anyWorker()
	ago, aged := "1 hour", p.chance(70)
	if p.chance(30) {
		ago = "-1 hour"
	}
	p.logStep("%s misses heartbeats, its claims are old: %t", w.name, aged)
	p.exec("update PREFIX_workers set heartbeat_at = now() - $2::text::interval where id = $1", w.id, ago)
	w.missedHeartbeats = true
	for i, stage := range p.model.stages {
		for _, t := range p.model.tasks {
			if s := &t.stages[i]; aged && s.status == inprogress && s.worker == w.id {
				p.exec("update PREFIX_steps set locked_at = now() - interval '1 hour' where task_id = $1 and stage = $2 and part = 0", t.id, stage)
				s.recentlyClaimed = false
			}
			for n, s := range t.stages[i].parts {
				if aged && s.status == inprogress && s.worker == w.id {
					p.exec("update PREFIX_steps set locked_at = now() - interval '1 hour' where task_id = $1 and stage = $2 and part = $3",
						t.id, stage, n+1)
					s.recentlyClaimed = false
				}
			}
		}
	}
}

func (p *simulation) sweep() {
	// On a busy machine a round takes longer than the grace. Workers that are to expire are older by an hour.
	busy := engine.OutageCredit{DisconnectGrace: time.Minute, Lease: time.Minute}
	w, credit, expires := p.anyWorker(), &busy, true
	switch n := p.rng.IntN(10); {
	case n == 0: // a sweep that expires no worker
		credit, expires = nil, false
	case n == 1: // a credit longer than the time of the missed heartbeats
		credit, expires = &engine.OutageCredit{DisconnectGrace: 2 * time.Hour, Lease: 2 * time.Hour}, false
	}
	p.logStep("%s sweeps, expires workers: %t", w.name, expires)
	checkUnchanged := p.checkUnchangedRows()
	want := p.model.sweep(w.id, expires)
	got, err := modelSweep(p.t.Context(), p.Engine, w.id, credit)
	p.must(err)
	p.compareIDs("expired workers", got.ExpiredWorkers, want.lost)
	moreReady := make([]bool, len(got.First))
	for i, first := range got.First {
		moreReady[i] = first != nil
	}
	if got.ExpiredClaims != want.expired || !slices.Equal(moreReady, want.moreReady) || cmp.Compare(got.NextDue, 0) != want.nextDue {
		p.fatalf("the sweep returned %+v, want %+v", got, want)
	}
	checkUnchanged()
}

func (p *simulation) deregister() {
	w := p.anyWorker()
	p.logStep("%s deregisters", w.name)
	p.must(p.DeregisterWorker(p.t.Context(), w.id))
	w.stopped = true
}

func (p *simulation) expireWorker() {
	w := p.anyWorker()
	p.logStep("%s is declared lost", w.name)
	lost, err := p.ExpireWorkers(p.t.Context(), []store.ID{w.id})
	p.must(err)
	if w.alive() != (len(lost) == 1) {
		p.fatalf("expired workers are %v", lost)
	}
	w.lost = w.lost || w.alive()
}

// someClaims returns up to n of all claims ever made, mostly of those still held.
func (p *simulation) someClaims(n int) []engine.Claim {
	var some []engine.Claim
	for range min(n, len(p.claims)) {
		c := pickOne(p, p.claims[max(0, len(p.claims)-30):])
		if p.chance(20) {
			c = pickOne(p, p.claims)
		}
		if !slices.ContainsFunc(some, func(o engine.Claim) bool { return o.Token == c.Token }) {
			some = append(some, c)
		}
	}
	return some
}

func (p *simulation) holds(c engine.Claim) bool {
	t := p.model.task(c.Task)
	return t != nil && t.holds(c.Stage, c.Part, c.Token)
}

// compareIDs compares two sets of ids.
func (p *simulation) compareIDs(what string, got, want []store.ID) {
	p.t.Helper()
	got, want = slices.Clone(got), slices.Clone(want)
	order := func(a, b store.ID) int { return bytes.Compare(a[:], b[:]) }
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		p.fatalf("%s are %v, want %v", what, got, want)
	}
}
