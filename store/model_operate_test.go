package store_test

import (
	"errors"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// The steps of operators, by commands or with psql.

func (p *simulation) cancelOne() {
	t := p.anyTask()
	p.logStep("cancel %s", t.name)
	if err := p.Cancel(p.t.Context(), t.id); errors.Is(err, store.ErrNotFound) != (t.stages == nil) {
		p.fatalf("cancel: %v", err)
	}
	p.model.cancel(t)
}

// fromStage returns the stage to retry from: -1 and "" for all that are not completed.
func (p *simulation) fromStage() (int, string) {
	if p.chance(50) {
		return -1, ""
	}
	from := p.rng.IntN(len(p.model.stages))
	return from, p.model.stages[from]
}

func (p *simulation) retryMany() {
	status := pickOne(p, []store.Status{dead, failing, cancelled})
	from, stage := p.fromStage()
	p.logStep("retry all that are %s from %q", status, stage)
	want := 0
	for _, t := range p.model.tasks {
		if t.overriddenBy.IsZero() && p.model.status(t) == status {
			p.model.retry(t, from, false)
			want++
		}
	}
	got, err := p.RetryAll(p.t.Context(), store.Filter{Status: status}, stage, store.RetryAllOptions{})
	p.must(err)
	if got.Retried != want {
		p.fatalf("RetryAll returned %+v, want %d retried", got, want)
	}
}

func (p *simulation) retryOne() {
	t := p.anyTask()
	from, stage := p.fromStage()
	retry, fresh := p.Retry, p.chance(30)
	if fresh {
		retry = p.RetryFresh
	}
	p.logStep("retry %s from %q, fresh %t", t.name, stage, fresh)
	err := retry(p.t.Context(), t.id, stage)
	switch {
	case t.stages == nil:
		if !errors.Is(err, store.ErrNotFound) {
			p.fatalf("retry: %v", err)
		}
	case p.model.retry(t, from, fresh):
		p.must(err)
	default:
		if !errors.Is(err, store.ErrOverridden) {
			p.fatalf("retry: %v", err)
		}
	}
}

func (p *simulation) overrideSome() {
	old := []*modelTask{p.anyTask()}
	if p.chance(50) {
		old = append(old, p.anyTask())
	}
	name, sub := p.newSubmission()
	var ids []store.ID
	ok := true
	for _, t := range old {
		ids = append(ids, t.id)
		ok = ok && t.stages != nil && t.overriddenBy.IsZero()
	}
	p.logStep("override %s by %s", names(old), name)
	r, err := p.Override(p.t.Context(), ids, sub)
	if !ok {
		if !errors.Is(err, store.ErrOverridden) && !errors.Is(err, store.ErrNotFound) {
			p.fatalf("override: %v", err)
		}
		p.rolledBack = append(p.rolledBack, sub.RequestID)
		return
	}
	p.must(err)
	p.model.add(r.ID, name, sub)
	p.committed = append(p.committed, sub.RequestID)
	for _, t := range old {
		p.model.cancel(t)
		t.overriddenBy = r.ID
	}
}

func names(tasks []*modelTask) string {
	var all []string
	for _, t := range tasks {
		all = append(all, t.name)
	}
	return strings.Join(all, ", ")
}

// changePriority changes a task's priority, as an operator with psql may.
func (p *simulation) changePriority() {
	t := p.anyTask()
	t.priority = int16(p.rng.IntN(3) - 1)
	p.logStep("%s gets the priority %d", t.name, t.priority)
	p.exec("update PREFIX_tasks set priority = $2 where id = $1", t.id, t.priority)
}

// deleteOne deletes a task's row, as an operator with psql may.
func (p *simulation) deleteOne() {
	t := p.anyTask()
	for _, other := range p.model.tasks {
		if other.overriddenBy == t.id {
			other.overriddenBy = store.ID{}
		}
	}
	p.logStep("delete %s", t.name)
	p.exec("delete from PREFIX_tasks where id = $1", t.id)
	p.model.tasks = slices.DeleteFunc(p.model.tasks, func(other *modelTask) bool { return other == t })
	p.committed = slices.DeleteFunc(p.committed, func(r string) bool { return r == t.request })
}
