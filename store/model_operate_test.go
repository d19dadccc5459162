package store_test

import (
	"errors"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// What operators do, by commands or with psql.

func (p *play) cancelOne() {
	t := p.someTask()
	p.say("cancel %s", t.name)
	if err := p.Cancel(p.t.Context(), t.id); errors.Is(err, store.ErrNotFound) != (t.stages == nil) {
		p.fatalf("cancel: %v", err)
	}
	p.m.cancel(t)
}

// fromStage is where to begin again: -1 and "" for whatever is missing.
func (p *play) fromStage() (int, string) {
	if p.chance(50) {
		return -1, ""
	}
	from := p.rng.IntN(len(p.m.stages))
	return from, p.m.stages[from]
}

func (p *play) retryMany() {
	status := pickOne(p, []store.Status{dead, failing, cancelled})
	from, stage := p.fromStage()
	p.say("retry all that are %s from %q", status, stage)
	want := 0
	for _, t := range p.m.tasks {
		if t.by.IsZero() && p.m.status(t) == status {
			p.m.retry(t, from)
			want++
		}
	}
	got, err := p.RetryAll(p.t.Context(), store.Filter{Status: status}, stage, store.RetryAllOptions{})
	p.must(err)
	if got.Retried != want {
		p.fatalf("%+v were retried, want %d", got, want)
	}
}

func (p *play) retryOne() {
	t := p.someTask()
	from, stage := p.fromStage()
	p.say("retry %s from %q", t.name, stage)
	err := p.Retry(p.t.Context(), t.id, stage)
	switch {
	case t.stages == nil:
		if !errors.Is(err, store.ErrNotFound) {
			p.fatalf("retry: %v", err)
		}
	case p.m.retry(t, from):
		p.must(err)
	default:
		if !errors.Is(err, store.ErrOverridden) {
			p.fatalf("retry: %v", err)
		}
	}
}

func (p *play) overrideSome() {
	old := []*modelTask{p.someTask()}
	if p.chance(50) {
		old = append(old, p.someTask())
	}
	name, sub := p.submission()
	var ids []store.ID
	ok := true
	for _, t := range old {
		ids = append(ids, t.id)
		ok = ok && t.stages != nil && t.by.IsZero()
	}
	p.say("override %s by %s", names(old), name)
	r, err := p.Override(p.t.Context(), ids, sub)
	if !ok {
		if !errors.Is(err, store.ErrOverridden) && !errors.Is(err, store.ErrNotFound) {
			p.fatalf("override: %v", err)
		}
		p.rolledBack = append(p.rolledBack, sub.RequestID)
		return
	}
	p.must(err)
	p.m.add(r.ID, name, sub)
	p.committed = append(p.committed, sub.RequestID)
	for _, t := range old {
		p.m.cancel(t)
		t.by = r.ID
	}
}

func names(tasks []*modelTask) string {
	var all []string
	for _, t := range tasks {
		all = append(all, t.name)
	}
	return strings.Join(all, ", ")
}

// deleteOne takes a task out of the table, as people with psql may.
func (p *play) deleteOne() {
	t := p.someTask()
	for _, other := range p.m.tasks {
		if other.by == t.id {
			other.by = store.ID{}
		}
	}
	p.say("delete %s", t.name)
	p.exec("delete from PREFIX_tasks where id = $1", t.id)
	p.m.tasks = slices.DeleteFunc(p.m.tasks, func(other *modelTask) bool { return other == t })
	p.committed = slices.DeleteFunc(p.committed, func(r string) bool { return r == t.request })
}
