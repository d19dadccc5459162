package store_test

import (
	"slices"
	"strings"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// read asks the questions whose answers are nowhere else compared.
func (p *play) read() {
	ctx := p.t.Context()
	w, t := p.someone(), p.m.task(p.someTask().id)
	p.say("reads, what %s holds among it", w.name)
	held, err := p.FindHeldClaims(ctx, w.id)
	p.must(err)
	p.same("claims held", tokensOfClaims(held), p.m.held(w.id))

	claims := p.known(5)
	lost, err := p.FindLostClaims(ctx, claims)
	p.must(err)
	p.same("claims lost", tokensOfLost(lost), p.lost(claims))
	p.readSettled(claims)

	counts, err := p.Counts(ctx)
	p.must(err)
	for i := range p.m.stages {
		for _, status := range []store.Status{pending, inprogress, done, failing, dead, cancelled} {
			if want := p.m.count(i, status); counts[i][status] != want {
				p.fatalf("%d tasks are %s in %s, want %d", counts[i][status], status, p.m.stages[i], want)
			}
		}
	}
	scheduled := 0
	for _, t := range p.m.tasks {
		if p.m.status(t) == store.StatusScheduled {
			scheduled++
		}
	}
	if strip, err := p.Stats(ctx); err != nil || strip.Scheduled != scheduled {
		p.fatalf("%d tasks are scheduled, %v; want %d", strip.Scheduled, err, scheduled)
	}
	if t == nil {
		return
	}
	got, err := p.Get(ctx, t.id)
	p.must(err)
	if got.Status != p.m.status(t) || got.IsFinished(p.Graph()) == p.m.open(t) {
		p.fatalf("%s is %s, settled %t; want %s, %t", t.name, got.Status, got.IsFinished(p.Graph()), p.m.status(t), !p.m.open(t))
	}
}

func tokensOfLost(claims []engine.LostClaim) []store.ID {
	var all []store.ID
	for _, c := range claims {
		all = append(all, c.Token)
	}
	return all
}

func tokensOfClaims(claims []engine.Claim) []store.ID {
	var all []store.ID
	for _, c := range claims {
		all = append(all, c.Token)
	}
	return all
}

func (p *play) lost(claims []engine.Claim) []store.ID {
	var all []store.ID
	for _, c := range claims {
		if !p.holds(c) {
			all = append(all, c.Token)
		}
	}
	return all
}

// readSettled: what a worker asks when it does not know whether its report
// arrived.
func (p *play) readSettled(claims []engine.Claim) {
	var reports []engine.Report
	for _, c := range claims {
		reports = append(reports, p.report(c))
	}
	settled, err := p.FindRecordedOutcomes(p.t.Context(), reports)
	p.must(err)
	for _, r := range reports {
		t := p.m.task(r.Task)
		if want := t != nil && t.history[r.Token].outcome == string(r.Outcome); settled[r.Token] != want {
			p.fatalf("%s is settled: %t, want %t", r.Token, settled[r.Token], want)
		}
	}
}

func (m *model) held(worker store.ID) []store.ID {
	var all []store.ID
	for _, t := range m.tasks {
		for i := range t.stages {
			if s := &t.stages[i]; s.status == inprogress && s.worker == worker {
				all = append(all, s.token)
			}
		}
	}
	return all
}

func (m *model) count(stage int, status store.Status) int {
	n := 0
	for _, t := range m.tasks {
		if t.stages[stage].status == status {
			n++
		}
	}
	return n
}

// status is how the task as a whole stands.
func (m *model) status(t *modelTask) store.Status {
	all := make([]string, len(t.stages))
	begun, scheduled := false, true
	for i := range t.stages {
		s := &t.stages[i]
		all[i] = string(s.status)
		begun = begun || s.status == done
		scheduled = scheduled && s.attempts == 0 && (m.untried(t, i) || len(m.needs[i]) > 0)
	}
	for _, first := range []store.Status{dead, cancelled, inprogress, failing} {
		if slices.Contains(all, string(first)) {
			return first
		}
	}
	switch {
	case strings.Count(strings.Join(all, " "), string(done)) == len(all):
		return done
	case begun:
		return inprogress
	case scheduled:
		return store.StatusScheduled
	}
	return pending
}
