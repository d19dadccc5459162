package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// completeAllParts completes the open parts of all tasks, and returns the claims of these parts in their order.
func (b divisible) completeAllParts() (claims []engine.Claim) {
	b.t.Helper()
	for {
		out, err := b.Exchange(b.t.Context(), engine.ExchangeRequest{
			Worker: b.w, FreeSlots: []int{0, 0, 0, 10}, ClaimFrom: []bool{false, false, false, true},
		})
		if err != nil {
			b.t.Fatal(err)
		}
		if len(out.Claims) == 0 {
			return claims
		}
		var reports []engine.Report
		for _, c := range out.Claims {
			r := partReport(c, engine.Completed)
			r.Result = raw(strconv.Quote(fmt.Sprintf("part %d, spec %s", c.Part, c.Spec)))
			reports = append(reports, r)
		}
		b.exchange(b.w, 0, reports...)
		claims = append(claims, out.Claims...)
	}
}

// claimJoin divides a task into n parts, completes them, and claims the join.
func (b divisible) claimJoin(n int) (store.ID, engine.Claim) {
	b.t.Helper()
	id, claims := b.divide(store.Submission{}, n, n)
	for _, c := range claims {
		b.exchange(b.w, 0, partReport(c, engine.Completed))
	}
	return id, b.claimStage(id)
}

// claimStage claims the divided stage of a task, to divide or to join it.
func (b divisible) claimStage(id store.ID) engine.Claim {
	b.t.Helper()
	out, err := b.Exchange(b.t.Context(), engine.ExchangeRequest{
		Worker: b.w, FreeSlots: []int{0, 1, 0, 0}, ClaimFrom: []bool{false, true, false, false}, OnlyTasks: []store.ID{id},
	})
	if err != nil || len(out.Claims) != 1 {
		b.t.Fatalf("the claims are %+v, %v", out.Claims, err)
	}
	return out.Claims[0]
}

// divisionAgain returns the report of a join that divides its stage into n parts again and keeps some.
func divisionAgain(c engine.Claim, n int, kept ...int) engine.Report {
	r := division(c, n)
	r.Kept = kept
	for i := range r.Parts {
		r.Parts[i] = raw(`2`)
	}
	return r
}

// because makes a division count as an attempt.
func because(r engine.Report, why string) engine.Report {
	r.Counted, r.Error, r.Class = true, why, "error"
	return r
}

func (b divisible) partResults(id store.ID) (all []string) {
	b.t.Helper()
	results, err := b.PartResults(b.t.Context(), id, "encode")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, r := range results {
		all = append(all, string(r))
	}
	return all
}

func TestDivideAgain_KeepsPartsAndMakesOthers(t *testing.T) {
	t.Parallel()
	const old = `{"bytes": 5}`
	for name, c := range map[string]struct {
		n       int
		kept    []int
		redone  []int
		results []string
	}{
		"a part again": {3, []int{1, 3}, []int{2}, []string{old, `"part 2, spec 2"`, old}},
		"another part": {4, []int{1, 2, 3}, []int{4}, []string{old, old, old, `"part 4, spec 2"`}},
		"fewer parts":  {2, []int{2}, []int{1}, []string{`"part 1, spec 2"`, old}},
		"other parts":  {2, nil, []int{1, 2}, []string{`"part 1, spec 2"`, `"part 2, spec 2"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupParts(t)
			id, join := b.claimJoin(3)
			wakes := b.listen("cuelight_film_encode")
			out := b.exchange(b.w, 0, divisionAgain(join, c.n, c.kept...))
			if len(out.Stale)+len(out.Locked) > 0 || len(out.Claims) > 0 {
				t.Errorf("the answer is %+v", out)
			}
			if got := wakes(); len(got) != 1 {
				t.Errorf("the notifications are %q", got)
			}
			if s := b.encodeState(id); s.Status != divided || s.Attempts != 0 || *s.Parts != c.n || *s.OpenParts != len(c.redone) {
				t.Errorf("the stage is %+v with %d parts, %d open", s, *s.Parts, *s.OpenParts)
			}
			var redone []int
			for _, claim := range b.completeAllParts() {
				if claim.Attempt != 1 || claim.Parts != c.n {
					t.Errorf("the claim is %+v", claim)
				}
				redone = append(redone, claim.Part)
			}
			if results := b.partResults(id); !slices.Equal(redone, c.redone) || !slices.Equal(results, c.results) {
				t.Errorf("parts %v were done again, the results are %q", redone, results)
			}
			join = b.claimStage(id)
			if b.exchange(b.w, 0, completed(join)); join.Attempt != 1 || join.Parts != c.n || b.encodeState(id).Status != done {
				t.Errorf("the claim is %+v, the stage %+v", join, b.encodeState(id))
			}
		})
	}
}

func TestDivideAgain_CountsAsAnAttemptIfAnErrorCausedIt(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, join := b.claimJoin(3)
	b.exchange(b.w, 0, because(divisionAgain(join, 3, 1, 3), "part 2 is lost\x00"))
	if s := b.encodeState(id); s.Status != divided || s.Attempts != 1 {
		t.Errorf("the stage is %+v", s)
	}
	history := b.history(id)
	if last := history[len(history)-1]; last.Outcome != "divided" || last.Error != "part 2 is lost\uFFFD" || last.Attempt != 1 ||
		history[1].Outcome != "divided" || history[1].Error != "" {
		t.Errorf("the history is %+v", history)
	}
	events, err := b.Events(t.Context(), store.EventQuery{Task: id})
	if err != nil {
		t.Fatal(err)
	}
	var data []string
	for _, e := range events {
		if e.Type == store.StageDivided {
			data = append(data, string(e.Data))
		}
	}
	want := []string{`{"parts": 3}`, `{"kept": 2, "error": "part 2 is lost` + "\uFFFD" + `", "parts": 3, "error_class": "error"}`}
	if !slices.Equal(data, want) {
		t.Errorf("the events have %s", data)
	}
	b.completeAllParts()
	if join := b.claimStage(id); join.Attempt != 2 {
		t.Errorf("the claim is %+v", join)
	}
}

func TestDivideAgain_ChangesNothingWithoutTheClaim(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, join := b.claimJoin(3)
	b.exchange(b.w, 0, engine.Report{Task: id, Stage: encode, Token: join.Token, Outcome: engine.Released})
	again := b.claimStage(id)
	if out := b.exchange(b.w, 0, divisionAgain(join, 4, 1)); len(out.Stale) != 1 {
		t.Errorf("the answer is %+v", out)
	}
	b.wantParts(id, done, done, done)
	if s := b.encodeState(id); s.Status != inprogress || *s.Parts != 3 || b.partResults(id)[2] != `{"bytes": 5}` {
		t.Errorf("the stage is %+v", s)
	}
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if out := b.exchange(b.w, 0, divisionAgain(again, 4, 1)); len(out.Stale) != 1 || !out.Stale[0].Cancelled {
		t.Errorf("the answer is %+v", out)
	}
	b.wantParts(id, done, done, done)
}

func TestDivideAgain_IsRecordedOnceIfItIsReportedAgain(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, join := b.claimJoin(3)
	report := divisionAgain(join, 3, 2)
	b.exchange(b.w, 0, report)
	part := b.exchange(b.w, 1).Claims[0]
	b.exchange(b.w, 0, partReport(part, engine.Completed))
	if out := b.exchange(b.w, 0, report, report); len(out.Stale)+len(out.Locked) > 0 {
		t.Errorf("the answer is %+v", out)
	}
	b.wantParts(id, done, done, pending)
	if open := *b.encodeState(id).OpenParts; open != 1 || part.Part != 1 {
		t.Errorf("%d parts are open, after part %d", open, part.Part)
	}
	recorded, err := b.FindRecordedOutcomes(t.Context(), []engine.Report{report})
	if err != nil || !recorded[report.Token] {
		t.Errorf("the recorded outcomes are %v, %v", recorded, err)
	}
}

func TestDivideAgain_IsAppliedOnceTheTaskIsNotLocked(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, join := b.claimJoin(2)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select from film_tasks where id = $1 for update`, id); err != nil {
		t.Fatal(err)
	}
	out := b.exchange(b.w, 0, divisionAgain(join, 3, 1))
	if len(out.Locked) != 1 {
		t.Errorf("the answer is %+v", out)
	}
	b.wantParts(id, done, done)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := b.exchange(b.w, 0, out.Locked...); len(out.Locked) != 0 {
		t.Errorf("the answer is %+v", out)
	}
	b.wantParts(id, done, pending, pending)
}

// New parts have the task's priority of that moment, and the next turns.
func TestDivideAgain_MakesPartsThatTakeTurnsWithOtherTasks(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	first, join := b.claimJoin(3)
	b.exec(`update film_tasks set priority = 1 where id = $1`, first)
	second, _ := b.divide(store.Submission{Priority: 1}, 2, 1) // its second part has turn 2
	b.exchange(b.w, 0, divisionAgain(join, 4, 1))
	var order []string
	for _, c := range b.completeAllParts() {
		order = append(order, fmt.Sprintf("%v %d", c.Task == second, c.Part))
	}
	want := []string{"true 2", "false 2", "false 3", "false 4"}
	if !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
}

func TestDivideAgain_IsFollowedByRetriesAndCancels(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(b divisible, id store.ID) error
		parts  []store.Status
		status store.Status
	}{
		"cancel": {
			func(b divisible, id store.ID) error { return b.Cancel(b.t.Context(), id) },
			[]store.Status{done, cancelled, cancelled}, cancelled,
		},
		"fresh retry": {
			func(b divisible, id store.ID) error { return b.RetryFresh(b.t.Context(), id, "encode") }, nil, pending,
		},
		"retry of the stage": {
			func(b divisible, id store.ID) error { return b.Retry(b.t.Context(), id, "encode") },
			[]store.Status{done, inprogress, pending}, divided,
		},
		"a dead part and a retry": {func(b divisible, id store.ID) error {
			held, err := b.FindHeldClaims(b.t.Context(), b.w)
			if err != nil || len(held) != 1 {
				b.t.Fatalf("the held claims are %+v, %v", held, err)
			}
			failure := partReport(held[0].Claim, engine.Failed)
			failure.Dead = true
			b.exchange(b.w, 0, failure)
			b.wantParts(id, done, dead, cancelled)
			return b.Retry(b.t.Context(), id, "")
		}, []store.Status{done, pending, pending}, divided},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupParts(t)
			id, join := b.claimJoin(3)
			b.exchange(b.w, 1, because(divisionAgain(join, 3, 1), "lost"))
			b.wantParts(id, done, inprogress, pending)
			if err := c.change(b, id); err != nil {
				t.Fatal(err)
			}
			b.wantParts(id, c.parts...)
			if s := b.encodeState(id); s.Status != c.status || c.status != cancelled && s.Attempts != 0 {
				t.Errorf("the stage is %+v", s)
			}
		})
	}
}

// A join that died is retried, and may then divide its stage again.
func TestDivideAgain_IsPossibleAfterARetryOfADeadJoin(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, join := b.claimJoin(2)
	b.exchange(b.w, 0, engine.Report{Task: id, Stage: encode, Token: join.Token, Outcome: engine.Failed, Dead: true})
	if err := b.Retry(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	join = b.claimStage(id)
	b.exchange(b.w, 0, divisionAgain(join, 2, 2))
	b.wantParts(id, pending, done)
	if s := b.encodeState(id); join.Parts != 2 || s.Attempts != 0 {
		t.Errorf("the join is %+v, the stage %+v", join, s)
	}
}

func TestDivideAgain_WorksWithoutTriggers(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, join := b.claimJoin(3)
	b.exec(`alter table film_tasks disable trigger user; alter table film_steps disable trigger user`)
	b.exchange(b.w, 0, divisionAgain(join, 2, 1))
	b.wantParts(id, done, pending)
}

func TestDivideAgain_KeepsCountWhileManyWorkersDoParts(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	const n, rounds = 30, 5
	id := b.submitTask(store.Submission{Source: "film"})
	b.exec(`update film_tasks set fetch_status = 'completed'`)
	var mu sync.Mutex
	joins, started := 0, make(map[int]int) // attempts at parts
	report := func(c engine.Claim) engine.Report {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case c.Part > 0:
			started[c.Part]++
			return partReport(c, engine.Completed)
		case c.Parts == 0:
			return division(c, n)
		}
		if joins++; joins == rounds {
			return completed(c)
		}
		var kept []int
		for part := 1; part <= n; part += 2 {
			kept = append(kept, part)
		}
		return divisionAgain(c, n, kept...)
	}
	var workers sync.WaitGroup
	for range 4 {
		w := b.worker()
		workers.Go(func() {
			var reports []engine.Report
			for {
				out, err := b.Exchange(t.Context(), engine.ExchangeRequest{
					Worker: w, Reports: reports, FreeSlots: []int{0, 1, 0, 3}, ClaimFrom: []bool{false, true, false, true},
				})
				if err != nil || len(out.Stale) > 0 {
					t.Errorf("an exchange returned %+v, %v", out.Stale, err)
					return
				}
				reports = out.Locked
				for _, c := range out.Claims {
					reports = append(reports, report(c))
				}
				if len(reports) == 0 && b.encodeState(id).Status == done {
					return
				}
			}
		})
	}
	workers.Wait()
	for part := 1; part <= n; part++ {
		if want := 1 + (rounds-1)*(1-part%2); started[part] != want {
			t.Errorf("part %d was started %d times, want %d", part, started[part], want)
		}
	}
	if results := b.partResults(id); len(results) != n || !json.Valid([]byte(results[0])) {
		t.Errorf("the results are %q", results)
	}
}
