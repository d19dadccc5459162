package store_test

import (
	"slices"
	"strings"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// read compares the results of queries that no other step compares.
func (p *simulation) read() {
	ctx := p.t.Context()
	w, t := p.anyWorker(), p.model.task(p.anyTask().id)
	p.logStep("read, among others the claims of %s", w.name)
	held, err := p.FindHeldClaims(ctx, w.id)
	p.must(err)
	p.compareIDs("claims held", tokensOfClaims(held), p.model.held(w.id))

	claims := p.someClaims(5)
	lost, err := p.FindLostClaims(ctx, claims)
	p.must(err)
	p.compareIDs("claims lost", tokensOfLost(lost), p.lostClaims(claims))
	p.compareRecordedOutcomes(claims)

	scheduled := 0
	for _, t := range p.model.tasks {
		if p.model.status(t) == store.StatusScheduled {
			scheduled++
		}
	}
	if stats, err := p.Stats(ctx); err != nil || stats.Scheduled != scheduled {
		p.fatalf("%d tasks are scheduled, %v; want %d", stats.Scheduled, err, scheduled)
	}
	if t == nil {
		return
	}
	got, err := p.Get(ctx, t.id)
	p.must(err)
	if got.Status != p.model.status(t) || got.IsFinished(p.Graph()) == p.model.isUnfinished(t) {
		p.fatalf("%s is %s, finished: %t; want %s, %t", t.name, got.Status, got.IsFinished(p.Graph()), p.model.status(t),
			!p.model.isUnfinished(t))
	}
}

func tokensOfLost(claims []engine.LostClaim) []store.ID {
	var all []store.ID
	for _, c := range claims {
		all = append(all, c.Token)
	}
	return all
}

func tokensOfClaims(claims []engine.HeldClaim) []store.ID {
	var all []store.ID
	for _, c := range claims {
		all = append(all, c.Token)
	}
	return all
}

func (p *simulation) lostClaims(claims []engine.Claim) []store.ID {
	var all []store.ID
	for _, c := range claims {
		if !p.holds(c) {
			all = append(all, c.Token)
		}
	}
	return all
}

// compareRecordedOutcomes compares what a worker queries when the response to its reports
// was lost.
func (p *simulation) compareRecordedOutcomes(claims []engine.Claim) {
	var reports []engine.Report
	for _, c := range claims {
		reports = append(reports, p.report(c))
	}
	recorded, err := p.FindRecordedOutcomes(p.t.Context(), reports)
	p.must(err)
	for _, r := range reports {
		t := p.model.task(r.Task)
		if want := t != nil && t.history[r.Token].outcome == string(r.Outcome); recorded[r.Token] != want {
			p.fatalf("the outcome of %s is recorded: %t, want %t", r.Token, recorded[r.Token], want)
		}
	}
}

func (m *model) held(worker store.ID) []store.ID {
	var all []store.ID
	for _, t := range m.tasks {
		for i := range t.stages {
			for part := range t.stages[i].units() {
				if s := t.unit(i, part); s.status == inprogress && s.worker == worker {
					all = append(all, s.token)
				}
			}
		}
	}
	return all
}

// status returns the status of the whole task.
func (m *model) status(t *modelTask) store.Status {
	all := make([]string, len(t.stages))
	started := false
	for i := range t.stages {
		s := &t.stages[i]
		all[i] = string(s.status)
		started = started || s.status == done
	}
	for _, first := range []store.Status{dead, cancelled, inprogress, divided, failing} {
		switch {
		case !slices.Contains(all, string(first)):
		case first == divided:
			return inprogress
		default:
			return first
		}
	}
	switch {
	case strings.Count(strings.Join(all, " "), string(done)) == len(all):
		return done
	case started:
		return inprogress
	case t.scheduled:
		return store.StatusScheduled
	}
	return pending
}
