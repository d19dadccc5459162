package store_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// The stages of the pipeline of these tests: the second one divides.
const (
	fetch = iota
	encode
	join
	parts // the queue of the parts of encode
)

const divided = store.StatusDivided

// divisible is a bundle with a pipeline of three stages, and one worker.
type divisible struct {
	bundle
	w store.ID
}

func setupParts(t testing.TB) divisible {
	t.Helper()
	g, err := store.NewGraph("film", store.Node{Name: "fetch"},
		store.Node{Name: "encode", Needs: []string{"fetch"}, Divides: true},
		store.Node{Name: "join", Needs: []string{"encode"}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBundle(t, pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL())), g)
	return divisible{b, b.worker()}
}

// exchange claims tasks to divide and to join, and parts, up to free each.
func (b divisible) exchange(w store.ID, free int, reports ...engine.Report) engine.ExchangeResult {
	b.t.Helper()
	out, err := b.Exchange(b.t.Context(), engine.ExchangeRequest{
		Worker: w, Reports: reports, FreeSlots: []int{0, free, 0, free}, ClaimFrom: []bool{false, true, false, true},
		PromoteDue: true,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// divide submits a task and divides it into n parts, of which it claims some.
func (b divisible) divide(s store.Submission, n, claims int) (store.ID, []engine.Claim) {
	b.t.Helper()
	if s.Source == "" {
		s.Source = "film"
	}
	id := b.submitTask(s)
	b.exec(`update film_tasks set fetch_status = 'completed' where id = $1`, id)
	out, err := b.Exchange(b.t.Context(), engine.ExchangeRequest{
		Worker: b.w, FreeSlots: []int{0, 1, 0, 0}, ClaimFrom: []bool{false, true, false, false}, OnlyTasks: []store.ID{id},
	})
	if err != nil || len(out.Claims) != 1 || out.Claims[0].Parts != 0 {
		b.t.Fatalf("the claims are %+v, %v", out.Claims, err)
	}
	out = b.exchange(b.w, claims, division(out.Claims[0], n))
	if len(out.Stale)+len(out.Locked) > 0 || len(out.Claims) != min(n, claims) {
		b.t.Fatalf("the answer to the division is %+v", out)
	}
	return id, out.Claims
}

func TestPurge_DeletesThePartsThatADeletionWithoutTriggersLeaves(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, _ := b.divide(store.Submission{}, 3, 1)
	other, _ := b.divide(store.Submission{}, 2, 0)
	b.exec(`alter table film_tasks disable trigger user`)
	must(t, b.Delete(t.Context(), id, store.DeleteOptions{Purge: true}))
	b.exec(`alter table film_tasks enable trigger user`)
	claimed, err := b.ClaimToPurge(t.Context(), -1)
	if err != nil || len(claimed) != 1 {
		t.Fatalf("claimed %+v, %v", claimed, err)
	}
	must(t, b.Purge(t.Context(), id, ""))
	b.wantParts(other, pending, pending)
	var left int
	const leftSQL = `select (select count(*) from film_steps where task_id = $1) + (select count(*) from film_attempts where task_id = $1)`
	if err := b.pool.QueryRow(t.Context(), leftSQL, id).Scan(&left); err != nil || left > 0 {
		t.Errorf("%d parts and attempts of the purged task are left, %v", left, err)
	}
}

func division(c engine.Claim, n int) engine.Report {
	r := engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Divided}
	for range n {
		r.Parts = append(r.Parts, json.RawMessage(`{"seconds": 30}`))
	}
	return r
}

func partReport(c engine.Claim, outcome engine.Outcome) engine.Report {
	return engine.Report{
		Task: c.Task, Stage: c.Stage, Part: c.Part, Token: c.Token, Outcome: outcome, Result: raw(`{"bytes": 5}`),
	}
}

func (b divisible) encodeState(id store.ID) store.StageState { return b.get(id).Stages[encode] }

// wantParts compares the statuses of a task's parts, in their order.
func (b divisible) wantParts(id store.ID, want ...store.Status) {
	b.t.Helper()
	parts, err := b.Parts(b.t.Context(), id)
	var got []store.Status
	for _, p := range parts {
		got = append(got, p.Status)
	}
	if err != nil || !slices.Equal(got, want) {
		b.t.Errorf("the parts are %v, %v, want %v", got, err, want)
	}
}

func TestDivide_HoldsNoClaimWhilePartsAreOpen(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, claims := b.divide(store.Submission{}, 3, 2)
	if s := b.encodeState(id); s.Status != divided || s.Attempts != 0 || !s.LockedBy.IsZero() || *s.OpenParts != 3 {
		t.Errorf("the stage is %+v", s)
	}
	if claims[0].Part != 1 || claims[1].Part != 2 || string(claims[0].Spec) != `{"seconds": 30}` || claims[0].Attempt != 1 {
		t.Errorf("the claims are %+v", claims)
	}
	out := b.exchange(b.w, 1, partReport(claims[1], engine.Completed), partReport(claims[0], engine.Completed))
	if len(out.Claims) != 1 || out.Claims[0].Part != 3 || *b.encodeState(id).OpenParts != 1 {
		t.Fatalf("the claims are %+v", out.Claims)
	}
	wakes := b.listen("cuelight_film_encode")
	out = b.exchange(b.w, 0, partReport(out.Claims[0], engine.Completed))
	if s := b.encodeState(id); s.Status != pending || *s.OpenParts != 0 || len(out.Claims) > 0 {
		t.Errorf("the stage is %+v, the answer %+v", s, out)
	}
	if got := wakes(); len(got) != 1 {
		t.Errorf("the notifications are %q", got)
	}
	out = b.exchange(b.w, 1)
	if len(out.Claims) != 1 || out.Claims[0].Parts != 3 || out.Claims[0].Part != 0 || out.Claims[0].Attempt != 1 {
		t.Fatalf("the claims are %+v", out.Claims)
	}
	results, err := b.PartResults(t.Context(), id, "encode")
	if err != nil || len(results) != 3 || string(results[2]) != `{"bytes": 5}` {
		t.Errorf("the results are %s, %v", results, err)
	}
	b.exchange(b.w, 0, completed(out.Claims[0]))
	if s := b.encodeState(id); s.Status != done || s.Attempts != 1 {
		t.Errorf("the stage is %+v", s)
	}
}

func TestDivide_IsRecordedInEventsAndHistory(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, claims := b.divide(store.Submission{}, 2, 2)
	failure := partReport(claims[0], engine.Failed)
	failure.Error, failure.Class, failure.RetryIn = "no space", "error", time.Hour
	b.exchange(b.w, 0, failure, partReport(claims[1], engine.Completed))
	events, err := b.Events(t.Context(), store.EventQuery{Task: id})
	if err != nil {
		t.Fatal(err)
	}
	type event struct {
		store.EventType
		part int
	}
	var got []event
	for _, e := range events[1:] {
		got = append(got, event{e.Type, e.Part})
		if e.Type == store.AttemptFailed && string(e.Data) != `{"error": "no space", "error_class": "error"}` ||
			e.Type == store.StageDivided && string(e.Data) != `{"parts": 2}` || e.Stage != "encode" && e.Type != store.StageCompleted {
			t.Errorf("the event is %+v with %s", e, e.Data)
		}
	}
	got = slices.DeleteFunc(got, func(e event) bool { return e.EventType == store.StageCompleted })
	want := []event{
		{store.StageStarted, 0}, {store.StageDivided, 0}, {store.StageStarted, 1}, {store.StageStarted, 2},
		{store.PartCompleted, 2}, {store.AttemptFailed, 1}, {store.RetryScheduled, 1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the events are %v", got)
	}
	history := b.history(id)[1:] // without fetch
	if len(history) != 3 || history[0].Outcome != "divided" || history[0].Part != 0 ||
		history[1].Part != 2 || history[1].Outcome != "completed" || history[2].Part != 1 || history[2].RetryAt == nil {
		t.Errorf("the history is %+v", history)
	}
}

func TestParts_IgnoreReportsWithAnotherToken(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, claims := b.divide(store.Submission{}, 2, 1)
	stale := claims[0]
	stale.Token = store.ID{1}
	other := claims[0]
	other.Part = 2
	for _, c := range []engine.Claim{stale, other} {
		for _, outcome := range []engine.Outcome{engine.Completed, engine.Failed, engine.Released} {
			if out := b.exchange(b.w, 0, partReport(c, outcome)); len(out.Stale) != 1 {
				t.Errorf("%s with another token: %+v", outcome, out)
			}
		}
	}
	b.wantParts(id, inprogress, pending)
	if out := b.exchange(b.w, 0, partReport(claims[0], engine.Completed), partReport(claims[0], engine.Completed)); len(out.Stale) != 0 {
		t.Errorf("the answer is %+v", out)
	}
	if out := b.exchange(b.w, 0, partReport(claims[0], engine.Completed)); len(out.Stale) != 0 {
		t.Errorf("a report that is recorded is stale: %+v", out)
	}
	if *b.encodeState(id).OpenParts != 1 {
		t.Error("a part was counted twice")
	}
}

func TestParts_OfALostWorkerAreExpired(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, claims := b.divide(store.Submission{}, 3, 2)
	other := b.worker()
	b.exec(`update film_workers set lost_at = now() where id = $1`, b.w)
	sweep := func(max int) engine.SweepResult {
		out, err := b.Sweep(t.Context(), engine.SweepRequest{Worker: other, MaxAttempts: []int{max, max, max}})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	if out := sweep(2); out.ExpiredClaims != 2 || out.First[parts] == nil {
		t.Errorf("the sweep found %+v", out)
	}
	b.wantParts(id, failing, failing, pending)
	lost, err := b.FindLostClaims(t.Context(), claims)
	if err != nil || len(lost) != 2 || lost[0].Cancelled {
		t.Errorf("the lost claims are %+v, %v", lost, err)
	}
	if out := b.exchange(b.w, 1); len(out.Claims) != 0 {
		t.Errorf("a lost worker claimed %+v", out.Claims)
	}
	again := b.exchange(other, 2).Claims
	if len(again) != 2 || again[0].Part != 1 || again[0].Attempt != 2 {
		t.Fatalf("the claims are %+v", again)
	}
	b.exec(`update film_workers set stopped_at = now() where id = $1`, other)
	if out := sweep(2); out.ExpiredClaims != 2 {
		t.Errorf("the sweep found %+v", out)
	}
	b.wantParts(id, failing, failing, pending) // as before: a stopped worker's claims do not count
	w := b.worker()
	b.exchange(w, 1)
	b.exec(`update film_workers set lost_at = now() where id = $1`, w)
	sweep(2)
	if s := b.encodeState(id); s.Status != dead {
		t.Errorf("the stage is %+v", s)
	}
	b.wantParts(id, dead, cancelled, cancelled)
}

func TestParts_EndWithTheirTask(t *testing.T) {
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
		"retry from the stage before": {
			func(b divisible, id store.ID) error { return b.Retry(b.t.Context(), id, "fetch") }, nil, pending,
		},
		"fresh retry": {
			func(b divisible, id store.ID) error { return b.RetryFresh(b.t.Context(), id, "encode") }, nil, pending,
		},
		"retry of the stage": {
			func(b divisible, id store.ID) error { return b.Retry(b.t.Context(), id, "encode") },
			[]store.Status{done, inprogress, pending}, divided,
		},
		"override": {func(b divisible, id store.ID) error {
			_, err := b.Override(b.t.Context(), []store.ID{id}, store.Submission{Source: "new"})
			return err
		}, []store.Status{done, cancelled, cancelled}, cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupParts(t)
			id, claims := b.divide(store.Submission{}, 3, 2)
			b.exchange(b.w, 0, partReport(claims[0], engine.Completed))
			if err := c.change(b, id); err != nil {
				t.Fatal(err)
			}
			b.wantParts(id, c.parts...)
			if s := b.encodeState(id); s.Status != c.status || (s.OpenParts == nil) != (c.parts == nil) {
				t.Errorf("the stage is %+v", s)
			}
			if c.status == divided {
				return
			}
			lost, err := b.FindLostClaims(t.Context(), claims[1:])
			if err != nil || len(lost) != 1 || !lost[0].Cancelled {
				t.Errorf("the lost claims are %+v, %v", lost, err)
			}
			history := b.history(id)
			if last := history[len(history)-1]; last.Outcome != "cancelled" || last.Part != 2 {
				t.Errorf("the history is %+v", history)
			}
		})
	}
}

func TestParts_AreDeletedWithTheirTask(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, claims := b.divide(store.Submission{}, 3, 2)
	b.exec(`delete from film_tasks where id = $1`, id)
	b.wantParts(id)
	if h := b.history(id); len(h) != 0 {
		t.Errorf("the history is %+v", h)
	}
	if lost, err := b.FindLostClaims(t.Context(), claims); err != nil || len(lost) != 2 || !lost[0].Cancelled {
		t.Errorf("the lost claims are %+v, %v", lost, err)
	}
}

func TestParts_FollowTheTasksPriority(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	first, _ := b.divide(store.Submission{}, 2, 0)
	second, _ := b.divide(store.Submission{Priority: 1}, 2, 0)
	b.exec(`update film_tasks set priority = 2 where id = $1`, first)
	var order []store.ID
	for range 4 {
		order = append(order, b.exchange(b.w, 1).Claims[0].Task)
	}
	if want := []store.ID{first, first, second, second}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
}

func TestParts_InProgressFollowTheTasksPriorityWhenTheyAreReadyAgain(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	first, claims := b.divide(store.Submission{}, 2, 2)
	b.divide(store.Submission{Priority: 1}, 1, 0)
	b.exec(`update film_tasks set priority = 2 where id = $1`, first)
	b.exchange(b.w, 0, partReport(claims[0], engine.Released), partReport(claims[1], engine.Completed))
	if out := b.exchange(b.w, 1); len(out.Claims) != 1 || out.Claims[0].Task != first || out.Claims[0].Position.Rank != -2 {
		t.Errorf("the claims are %+v", out.Claims)
	}
	if open := *b.encodeState(first).OpenParts; open != 1 {
		t.Errorf("%d parts are open", open)
	}
}

func TestParts_AreClaimedOnlyByWorkersThatTheirTaskRequires(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id := b.submitTask(store.Submission{Source: "film", Placement: map[string]store.Placement{"encode": {Requires: []string{"gpu"}}}})
	b.exec(`update film_tasks set fetch_status = 'completed'`)
	gpu, err := b.RegisterWorker(t.Context(), store.Worker{Host: "gpu", PID: 2, Capabilities: raw(`{"labels": ["gpu"]}`)})
	if err != nil {
		t.Fatal(err)
	}
	b.exchange(gpu, 0, division(b.exchange(gpu, 1).Claims[0], 2))
	if out := b.exchange(b.w, 2); len(out.Claims) != 0 || out.MoreReady[parts] {
		t.Errorf("the answer is %+v", out)
	}
	if out := b.exchange(gpu, 2); len(out.Claims) != 2 {
		t.Errorf("the answer is %+v", out)
	}
	b.wantParts(id, inprogress, inprogress)
}

// Remote workers, which may be the only ones that offer a label, neither divide nor join.
func TestDivide_IsLeftToNoWorkerThatTheTaskRequires(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	b.submitTask(store.Submission{Source: "film", Placement: map[string]store.Placement{"encode": {
		Requires: []string{"gpu"}, Prefers: []string{"nvenc"}, Wait: time.Hour,
	}}})
	fetching, err := b.Exchange(b.t.Context(), engine.ExchangeRequest{
		Worker: b.w, FreeSlots: []int{1, 0, 0, 0}, ClaimFrom: []bool{true, false, false, false},
	})
	if err != nil || len(fetching.Claims) != 1 {
		t.Fatalf("the claims are %+v, %v", fetching.Claims, err)
	}
	out := b.exchange(b.w, 1, completed(fetching.Claims[0]))
	if len(out.Claims) != 1 || out.Claims[0].Stage != encode || out.NextDue >= 0 {
		t.Fatalf("the answer is %+v", out)
	}
	gpu, err := b.RegisterWorker(t.Context(), store.Worker{Host: "gpu", PID: 2, Capabilities: raw(`{"labels": ["gpu"]}`)})
	if err != nil {
		t.Fatal(err)
	}
	part := b.exchange(gpu, 1, division(out.Claims[0], 1)).Claims
	if out := b.exchange(b.w, 1); len(part) != 1 || len(out.Claims) != 0 {
		t.Fatalf("the part was claimed %+v, %+v", part, out.Claims)
	}
	b.exchange(gpu, 0, partReport(part[0], engine.Completed))
	if out := b.exchange(b.w, 1); len(out.Claims) != 1 || out.Claims[0].Parts == 0 {
		t.Errorf("the join was claimed %+v", out.Claims)
	}
}

func TestParts_AreFoundByTheirWorkerAfterALostAnswer(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	_, claims := b.divide(store.Submission{}, 3, 2)
	held, err := b.FindHeldClaims(t.Context(), b.w)
	if err != nil || len(held) != 2 || held[0].Part+held[1].Part != 3 || held[0].Parts != 3 ||
		held[0].Stage != encode || string(held[0].Spec) != `{"seconds": 30}` {
		t.Errorf("the held claims are %+v, %v", held, err)
	}
	report := partReport(claims[0], engine.Completed)
	b.exchange(b.w, 0, report)
	recorded, err := b.FindRecordedOutcomes(t.Context(), []engine.Report{report, partReport(claims[1], engine.Completed)})
	if err != nil || len(recorded) != 1 || !recorded[report.Token] {
		t.Errorf("the recorded outcomes are %v, %v", recorded, err)
	}
}

func TestParts_ThatFailedAreRetriedAtOnceByARetry(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, claims := b.divide(store.Submission{}, 2, 2)
	failure := partReport(claims[0], engine.Failed)
	failure.RetryIn = time.Hour
	out := b.exchange(b.w, 1, failure)
	if len(out.Claims) != 0 || out.NextDue < time.Minute {
		t.Errorf("the answer is %+v", out)
	}
	if err := b.Retry(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	if out := b.exchange(b.w, 1); len(out.Claims) != 1 || out.Claims[0].Part != 1 || out.Claims[0].Attempt != 1 {
		t.Errorf("the claims are %+v", out.Claims)
	}
	b.wantParts(id, inprogress, inprogress)
}

func TestParts_GoWhenTheirStageIsMadePendingByHand(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, claims := b.divide(store.Submission{}, 3, 2)
	b.exchange(b.w, 0, partReport(claims[0], engine.Completed))
	b.exec(`update film_tasks set encode_status = 'pending' where id = $1`, id)
	b.wantParts(id)
	if lost, err := b.FindLostClaims(t.Context(), claims[1:]); err != nil || len(lost) != 1 || !lost[0].Cancelled {
		t.Errorf("the lost claims are %+v, %v", lost, err)
	}
	if c := b.claimStage(id); c.Parts != 0 {
		t.Errorf("the claim is %+v", c)
	}
}

func TestMigrate_AddsPartsToAStage(t *testing.T) {
	t.Parallel()
	before, err := store.NewGraph("film", store.Node{Name: "fetch"}, store.Node{Name: "encode", Needs: []string{"fetch"}})
	if err != nil {
		t.Fatal(err)
	}
	after, err := store.NewGraph("film", store.Node{Name: "fetch"}, store.Node{Name: "encode", Needs: []string{"fetch"}, Divides: true},
		store.Node{Name: "join", Needs: []string{"encode"}})
	if err != nil {
		t.Fatal(err)
	}
	old := newBundle(t, pgtest.New(t, pgtest.SQL(before.SchemaSQL(), before.TriggersSQL())), before)
	id := old.submit()
	b := divisible{newBundle(t, old.pool, after), store.ID{}}
	if _, err := b.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.w = b.worker()
	if b.get(id).Stages[encode].OpenParts != nil {
		t.Error("an old task is divided")
	}
	b.exec(`delete from film_tasks`)
	b.divide(store.Submission{}, 2, 2)
	if err := store.New(b.pool, before).Check(t.Context()); err == nil {
		t.Error("the tables are accepted by a program that does not divide")
	}
}
