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

// moves are what may happen, and how often. Each does the same to the model and
// to the store, and compares what they answer; what they have become is
// compared after each.
func (p *play) moves() []move {
	all := []move{
		{10, p.submit},
		{2, p.submitAgain},
		{2, p.submitAndRollBack},
		{60, p.turn},
		{4, p.passTime},
		{6, p.sayAlive},
		{5, p.fallSilent},
		{8, p.sweepUp},
		{2, p.leave},
		{2, p.giveUp},
		{6, p.returnOne},
		{3, p.cancelOne},
		{2, p.overrideSome},
		{1, p.deleteOne},
		{4, p.read},
	}
	if !p.careful {
		all = append(all, move{5, p.retryOne}, move{1, p.retryMany})
	}
	return all
}

func (p *play) chance(percent int) bool { return p.rng.IntN(100) < percent }

func pickOne[T any](p *play, all []T) T { return all[p.rng.IntN(len(all))] }

func (p *play) someone() *modelWorker { return pickOne(p, p.workers) }

// someTask is any task, now and then one that is not there.
func (p *play) someTask() *modelTask {
	if len(p.m.tasks) == 0 || p.chance(3) {
		return &modelTask{id: store.ID{1}, name: "nothing"}
	}
	return pickOne(p, p.m.tasks)
}

func (p *play) submission() (string, store.Submission) {
	p.count++
	name := fmt.Sprint("t", p.count)
	sub := store.Submission{Source: name, RequestID: "r" + name}
	if p.chance(20) {
		sub.Priority = int16(p.rng.IntN(3) - 1)
	}
	if p.chance(10) {
		sub.NotBefore = time.Now().Add(time.Hour)
	}
	return name, sub
}

// submit keeps about ten tasks in the works.
func (p *play) submit() {
	open := 0
	for _, t := range p.m.tasks {
		if p.m.open(t) {
			open++
		}
	}
	if open >= 10 {
		return
	}
	name, sub := p.submission()
	p.say("submit %s, priority %d, later %t", name, sub.Priority, !sub.NotBefore.IsZero())
	r, err := p.Submit(p.t.Context(), sub)
	p.must(err)
	if r.Existed || p.m.task(r.ID) != nil {
		p.fatalf("a new task is %+v", r)
	}
	p.m.add(r.ID, name, sub)
	p.committed = append(p.committed, sub.RequestID)
}

func (p *play) submitAgain() {
	t := p.someTask()
	if t.request == "" {
		return
	}
	p.say("submit %s again", t.name)
	r, err := p.Submit(p.t.Context(), store.Submission{Source: t.name, Priority: 9, RequestID: t.request})
	p.must(err)
	if !r.Existed || r.ID != t.id {
		p.fatalf("submitted again, %s is %+v", t.name, r)
	}
}

func (p *play) submitAndRollBack() {
	_, sub := p.submission()
	p.say("submit %s and roll back", sub.Source)
	changedMind := errors.New("changed my mind")
	err := pgx.BeginFunc(p.t.Context(), p.pool, func(tx pgx.Tx) error {
		_, err := p.WithTx(tx).Submit(p.t.Context(), sub)
		p.must(err)
		return changedMind
	})
	if !errors.Is(err, changedMind) {
		p.fatalf("%v", err)
	}
	p.rolledBack = append(p.rolledBack, sub.RequestID)
}

// passTime lets the times come that some stages wait for.
func (p *play) passTime() {
	for _, t := range p.m.tasks {
		for i := range t.stages {
			if t.stages[i].wait == waiting && p.chance(50) {
				p.say("the time of %s of %s comes", p.m.stages[i], t.name)
				p.exec("update PREFIX_tasks set "+p.m.stages[i]+"_run_at = now() - interval '1 minute' where id = $1", t.id)
				t.stages[i].wait = waitOver
			}
		}
	}
}

// returnOne lets somebody who is gone come back, as somebody new.
func (p *play) returnOne() {
	for i, w := range p.workers {
		if !w.alive() {
			p.workers[i] = p.join(w.name)
			return
		}
	}
}

func (p *play) join(name string) *modelWorker {
	id, err := modelRegister(p.t.Context(), p.Engine)
	p.must(err)
	w := &modelWorker{id: id, name: name}
	p.say("%s registers", name)
	p.m.workers = append(p.m.workers, w)
	return w
}

func (p *play) sayAlive() {
	w := p.someone()
	claims := p.known(8)
	p.say("%s beats with %d claims", w.name, len(claims))
	untouched := p.untouched()
	lost, err := modelBeat(p.t.Context(), p.Engine, w.id, claims)
	if !w.alive() {
		if !errors.Is(err, store.ErrWorkerUnknown) {
			p.fatalf("the beat of %s, who is gone, is answered by %v", w.name, err)
		}
		return
	}
	p.must(err)
	w.silent = false
	p.same("lost claims", lost, p.lost(claims))
	untouched()
}

// fallSilent makes a worker one who has not beaten for long, or who has set
// its clock wrong, and its claims old ones, or not.
func (p *play) fallSilent() {
	w := p.someone()
	ago, aged := "1 hour", p.chance(70)
	if p.chance(30) {
		ago = "-1 hour"
	}
	p.say("%s is silent, its claims old: %t", w.name, aged)
	p.exec("update workers set heartbeat_at = now() - $2::text::interval where id = $1", w.id, ago)
	w.silent = true
	for i, stage := range p.m.stages {
		for _, t := range p.m.tasks {
			if s := &t.stages[i]; aged && s.status == inprogress && s.worker == w.id {
				p.exec("update PREFIX_tasks set "+stage+"_locked_at = now() - interval '1 hour' where id = $1", t.id)
				s.young = false
			}
		}
	}
}

func (p *play) sweepUp() {
	w, judge, judges := p.someone(), &engine.OutageCredit{}, true
	switch n := p.rng.IntN(10); {
	case n == 0: // it gives up nobody
		judge, judges = nil, false
	case n == 1: // it was away itself for longer than the others are silent
		judge, judges = &engine.OutageCredit{Grace: 2 * time.Hour, Lease: 2 * time.Hour}, false
	}
	p.say("%s sweeps, judges %t", w.name, judges)
	untouched := p.untouched()
	want := p.m.sweep(w.id, judges)
	got, err := modelSweep(p.t.Context(), p.Engine, w.id, judge)
	p.must(err)
	p.same("workers given up", got.ExpiredWorkers, want.lost)
	if got.ExpiredClaims != want.expired || !slices.Equal(got.MoreReady, want.left) || !slices.Equal(signs(got.NextDue), want.next) {
		p.fatalf("swept %+v, want %+v", got, want)
	}
	untouched()
}

func (p *play) leave() {
	w := p.someone()
	p.say("%s leaves", w.name)
	p.must(p.DeregisterWorker(p.t.Context(), w.id))
	w.stopped = true
}

func (p *play) giveUp() {
	w := p.someone()
	p.say("%s is given up", w.name)
	lost, err := p.ExpireWorkers(p.t.Context(), []store.ID{w.id})
	p.must(err)
	if w.alive() != (len(lost) == 1) {
		p.fatalf("given up are %v", lost)
	}
	w.lost = w.lost || w.alive()
}

// known is some of the claims there ever were, mostly those that are held.
func (p *play) known(n int) []engine.Claim {
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

func (p *play) holds(c engine.Claim) bool {
	t := p.m.task(c.Task)
	return t != nil && t.stages[c.Stage].token == c.Token
}

// same compares two sets.
func (p *play) same(what string, got, want []store.ID) {
	p.t.Helper()
	got, want = slices.Clone(got), slices.Clone(want)
	order := func(a, b store.ID) int { return bytes.Compare(a[:], b[:]) }
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) {
		p.fatalf("%s are %v, want %v", what, got, want)
	}
}

// signs are -1, 0 or 1, for never, now and later.
func signs(next []time.Duration) []int {
	var all []int
	for _, n := range next {
		all = append(all, cmp.Compare(n, 0))
	}
	return all
}
