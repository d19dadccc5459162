package store_test

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

const (
	pending    = store.StatusPending
	inprogress = store.StatusInProgress
	done       = store.StatusCompleted
	failing    = store.StatusFailed
	dead       = store.StatusDead
	cancelled  = store.StatusCancelled
)

func TestTaskFlowsThroughItsStages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()

	c := b.claim(w, ingest)
	if c.Task != id || c.Attempt != 1 || c.Source != "a.mp4" || string(c.Params) != "{}" {
		t.Errorf("claim is %+v", c)
	}
	b.want(id, inprogress, pending, pending, pending, pending)

	out := b.turn(w, 1, []engine.Report{completed(c)})
	b.want(id, done, inprogress, inprogress, pending, pending)
	if len(out.Claims) != 2 {
		t.Fatalf("completing ingest claimed %d stages of the task, want transcode and metadata", len(out.Claims))
	}

	next := b.turn(w, 1, []engine.Report{completed(out.Claims[0])})
	b.want(id, done, done, inprogress, pending, pending)
	if len(next.Claims) != 0 {
		t.Errorf("assemble was claimed before metadata was completed")
	}
	b.finish(w, out.Claims[1])
	b.want(id, done, done, done, done, done)
	if got := b.get(id).Status; got != done {
		t.Errorf("task is %s, want completed", got)
	}
	if h := b.history(id); len(h) != 5 {
		t.Errorf("history has %d attempts, want 5", len(h))
	}
}

func TestSiblingsCompletedInOneTurnFireTheFanInOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	two := b.turn(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims

	out := b.turn(w, 5, []engine.Report{completed(two[0]), completed(two[1])}, assemble)
	if len(out.Claims) != 1 || out.Claims[0].Stage != assemble {
		t.Errorf("claims are %+v, want assemble once", out.Claims)
	}
	b.want(id, done, done, done, inprogress, pending)
}

func TestStageGoesOnOnlyWhileSlotsAreFree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	for range 3 {
		b.submit()
	}
	first := b.turn(w, 3, nil, ingest).Claims
	in := turn(w, 0, []engine.Report{completed(first[0]), completed(first[1]), completed(first[2])})
	in.FreeSlots[transcode] = 2
	out, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Claims) != 2 || out.Claims[0].Stage != transcode || out.Claims[1].Stage != transcode {
		t.Errorf("claims are %+v, want two of transcode", out.Claims)
	}
	if !out.MoreReady[transcode] || !out.MoreReady[metadata] {
		t.Errorf("stages with work left are %v, want transcode and metadata among them", out.MoreReady)
	}
}

func TestReportWithAnotherTokenChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	held := b.claim(w, ingest)
	stale := held
	stale.Token = store.ID{1}

	for name, report := range map[string]engine.Report{
		"completed": completed(stale),
		"failed":    failed(stale, time.Second),
		"released":  {Task: id, Stage: ingest, Token: stale.Token, Outcome: engine.Released},
		"no token":  {Task: id, Stage: ingest, Outcome: engine.Completed},
		"nothing":   {Outcome: engine.Completed},
	} {
		out := b.turn(w, 1, []engine.Report{report})
		if len(out.Stale) != 1 || len(out.Claims) != 0 {
			t.Errorf("%s: stale %d, claims %d; want 1 and 0", name, len(out.Stale), len(out.Claims))
		}
		b.want(id, inprogress, pending, pending, pending, pending)
	}
	if h := b.history(id); len(h) != 0 {
		t.Errorf("history has %d attempts, want none", len(h))
	}
	if out := b.turn(w, 0, []engine.Report{completed(held)}); len(out.Stale) != 0 {
		t.Error("the holder's own report was refused")
	}
	if out := b.turn(w, 0, []engine.Report{completed(held)}); len(out.Stale) != 1 {
		t.Error("a report was taken twice")
	}
}

func TestFailedStageWaitsForItsTimeAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	b.turn(w, 1, []engine.Report{failed(b.claim(w, ingest), time.Hour)})
	b.want(id, failing, pending, pending, pending, pending)

	out := b.turn(w, 1, nil, ingest)
	if len(out.Claims) != 0 || out.MoreReady[ingest] {
		t.Errorf("a stage was claimed, or shown as ready, before its time")
	}
	if n := out.NextDue[ingest]; n < 59*time.Minute || n > time.Hour {
		t.Errorf("next time is in %s, want an hour", n)
	}

	b.exec("update tasks set ingest_run_at = now() - interval '1 second'")
	in := turn(w, 1, nil, ingest)
	in.PromoteDue[ingest] = true
	again, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Claims) != 1 || again.Claims[0].Attempt != 2 {
		t.Fatalf("claims are %+v, want the second attempt", again.Claims)
	}
	h := b.history(id)
	if len(h) != 1 || h[0].Outcome != "failed" || h[0].Error != "no luck" || h[0].RetryAt == nil || h[0].Host != "test" {
		t.Errorf("history is %+v", h)
	}
}

func TestDeadStageLeavesItsSiblingAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	two := b.turn(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	r := failed(two[0], 0)
	r.Dead = true
	b.turn(w, 1, []engine.Report{r})
	b.want(id, done, dead, inprogress, pending, pending)
	if task := b.get(id); task.Status != dead || task.IsFinished(b.Graph()) {
		t.Errorf("task is %s and settled %t; want dead, and not settled while metadata runs", task.Status, task.IsFinished(b.Graph()))
	}
	b.turn(w, 1, []engine.Report{completed(two[1])})
	b.want(id, done, dead, done, pending, pending)
	if !b.get(id).IsFinished(b.Graph()) {
		t.Error("nothing will happen any more, but the task is not settled")
	}
}

func TestReleasedClaimDoesNotCountAsAnAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	c := b.claim(w, ingest)
	b.turn(w, 0, []engine.Report{{Task: id, Stage: ingest, Token: c.Token, Outcome: engine.Released}})
	if again := b.claim(w, ingest); again.Attempt != 1 || again.Token == c.Token {
		t.Errorf("second claim is attempt %d with token reused %t; want 1 and false", again.Attempt, again.Token == c.Token)
	}
	if h := b.history(id); len(h) != 1 || h[0].Outcome != "released" {
		t.Errorf("history is %+v, want one released attempt", h)
	}
}

func TestHigherPriorityIsClaimedFirstThenTheOlder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	low := b.submission(store.Submission{Source: "low", Priority: -1})
	old := b.submission(store.Submission{Source: "old"})
	young := b.submission(store.Submission{Source: "young"})
	high := b.submission(store.Submission{Source: "high", Priority: 5})
	for i, want := range []store.ID{high, old, young, low} {
		if got := b.claim(w, ingest).Task; got != want {
			t.Errorf("claim %d is %s, want %s", i, got, want)
		}
	}
}

func TestPriorityBeatsGoingOnWithTheSameTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submission(store.Submission{Source: "ordinary"})
	mine := b.claim(w, ingest)
	urgent := b.submission(store.Submission{Source: "urgent", Priority: 1})
	theirs := b.claim(w, ingest)
	b.turn(w, 0, []engine.Report{completed(theirs)}) // no free slots: transcode and metadata of urgent wait

	out := b.turn(w, 1, []engine.Report{completed(mine)})
	if len(out.Claims) != 0 {
		t.Errorf("went on with the ordinary task although an urgent one waits: %+v", out.Claims)
	}
	if got := b.claim(w, transcode).Task; got != urgent {
		t.Errorf("next transcode is of %s, want the urgent task", got)
	}
}

// Of tasks of one priority the older goes first, wherever it comes from: a turn that
// completes what a newer one needs goes on with it only if no older one is ready.
func TestStageDoesNotGoOnBeforeAnOlderTaskThatIsReady(t *testing.T) {
	t.Parallel()
	type world struct {
		bundle
		w          store.ID
		held       []engine.Claim         // ingest of the older and of the newer task
		transcodes engine.ExchangeRequest // completes ingest of the newer, with one slot for transcode
	}
	for name, ready := range map[string]func(v *world){
		"waiting for a slot": func(v *world) {
			v.turn(v.w, 0, []engine.Report{completed(v.held[0])})
		},
		"claimed in the same turn": func(v *world) {
			v.transcodes.Reports = append(v.transcodes.Reports, completed(v.held[0]))
		},
		"due for another try": func(v *world) {
			c := v.turn(v.w, 1, []engine.Report{completed(v.held[0])}).Claims[0]
			v.turn(v.w, 0, []engine.Report{failed(c, time.Hour)})
			v.exec("update tasks set transcode_run_at = now() - interval '1 s' where transcode_run_at is not null")
			v.transcodes.PromoteDue[transcode] = true
		},
		"to be tried again at once": func(v *world) {
			c := v.turn(v.w, 1, []engine.Report{completed(v.held[0])}).Claims[0]
			v.transcodes.Reports = append(v.transcodes.Reports, failed(c, 0))
		},
		"given back": func(v *world) {
			c := v.turn(v.w, 1, []engine.Report{completed(v.held[0])}).Claims[0]
			v.transcodes.Reports = append(v.transcodes.Reports, engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Released})
		},
		"before the place to go on from": func(v *world) {
			v.turn(v.w, 0, []engine.Report{completed(v.held[0])})
			v.transcodes.After = make([]engine.Position, 5)
			v.transcodes.After[transcode] = engine.Position{Task: v.held[0].Task}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := world{bundle: setup(t)}
			v.w = v.worker()
			older, newer := v.submit(), v.submit()
			v.held = v.turn(v.w, 2, nil, ingest).Claims
			v.transcodes = turn(v.w, 0, []engine.Report{completed(v.held[1])}, transcode)
			v.transcodes.FreeSlots[transcode] = 1
			ready(&v)
			out, err := v.Exchange(t.Context(), v.transcodes)
			if err != nil {
				t.Fatal(err)
			}
			if len(out.Claims) != 1 || out.Claims[0].Task != older || out.Claims[0].Stage != transcode {
				t.Errorf("claims are %+v, want transcode of %s", out.Claims, older)
			}
			if !out.MoreReady[transcode] {
				t.Error("the newer is not said to be left")
			}
			v.want(newer, done, pending, pending, pending, pending)
		})
	}
}

func TestSlotsThatOlderTasksLeaveAreForThoseReported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	for range 6 {
		b.submit()
	}
	held := b.turn(w, 6, nil, ingest).Claims
	b.turn(w, 0, []engine.Report{completed(held[1]), completed(held[3])})
	in := turn(w, 0, []engine.Report{completed(held[5]), completed(held[4]), completed(held[2]), completed(held[0])}, transcode)
	in.FreeSlots[transcode] = 5
	out, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range out.Claims {
		if c.Task != held[i].Task || c.Stage != transcode {
			t.Errorf("claim %d is %s, want transcode of %s", i, c.Task, held[i].Task)
		}
	}
	if len(out.Claims) != 5 || out.Granted[transcode] != out.Requested[transcode] {
		t.Errorf("%d claims, found %d of %d; want 5, and as many as asked for", len(out.Claims), out.Granted[transcode], out.Requested[transcode])
	}
}

func TestResultIsKeptWithTheAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	r := completed(b.claim(w, ingest))
	r.Result = raw(`{"file": "x", "bytes": 12345678901234567890}`)
	b.turn(w, 0, []engine.Report{r})
	got, err := b.Result(t.Context(), id, "ingest")
	if err != nil || string(got) != `{"file": "x", "bytes": 12345678901234567890}` {
		t.Errorf("result is %s, %v", got, err)
	}
}

func TestErrorTextIsMadeFitForTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	r := failed(b.claim(w, ingest), time.Second)
	r.Error = "bad \xff bytes and \x00"
	b.turn(w, 0, []engine.Report{r})
	if got := b.history(id)[0].Error; got != "bad \uFFFD bytes and \uFFFD" {
		t.Errorf("error is %q", got)
	}
}

func TestStaleReportDoesNotHideTheOneThatHolds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	old := b.claim(w, ingest)
	if err := b.Retry(t.Context(), id, "ingest"); err != nil {
		t.Fatal(err)
	}
	held := b.claim(w, ingest)
	out := b.turn(w, 0, []engine.Report{completed(held), completed(old), completed(held)})
	if len(out.Stale) != 1 || out.Stale[0].Token != old.Token {
		t.Errorf("stale are %+v, want the old claim", out.Stale)
	}
	b.want(id, done, pending, pending, pending, pending)
}

func TestTurnPassesOverRowsThatSomebodyHasLocked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	w := b.worker()
	b.submit()
	b.submit()
	claims := b.turn(w, 2, nil, ingest).Claims
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "select from tasks where id = $1 for update", claims[0].Task); err != nil {
		t.Fatal(err)
	}
	reports := []engine.Report{completed(claims[0]), completed(claims[1]), failed(engine.Claim{Task: store.ID{9}, Token: store.ID{9}}, 0)}
	out := b.turn(w, 0, reports)
	if len(out.Locked) != 1 || out.Locked[0].Task != claims[0].Task {
		t.Errorf("locked are %+v, want the first task", out.Locked)
	}
	if len(out.Stale) != 1 || out.Stale[0].Task != (store.ID{9}) {
		t.Errorf("stale are %+v, want the task that is not there", out.Stale)
	}
	b.want(claims[1].Task, done, pending, pending, pending, pending)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if out := b.turn(w, 0, out.Locked); len(out.Locked)+len(out.Stale) != 0 {
		t.Errorf("handed in again: %+v", out)
	}
}

func TestTimeThatHasComeIsSaidToBeNow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	b.exec("update tasks set ingest_run_at = now() - interval '1 hour'")
	if n := b.turn(w, 1, nil, ingest).NextDue[ingest]; n != 0 {
		t.Errorf("next is %s, want 0", n)
	}
	b.exec("update tasks set ingest_run_at = '294000-01-01'")
	if n := b.turn(w, 1, nil, ingest).NextDue[ingest]; n < 24*time.Hour {
		t.Errorf("next is %s, want a long time", n)
	}
}

func TestFanInThatIsNotCompleteIsNotAMiss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	two := b.turn(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	in := turn(w, 1, []engine.Report{completed(two[0])}, assemble)
	out, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if out.MoreReady[assemble] {
		t.Error("assemble is said to be left with metadata missing")
	}
}

func TestStageThatYieldsToAHigherPriorityIsSaidToBeLeft(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submission(store.Submission{Source: "ordinary"})
	mine := b.claim(w, ingest)
	b.submission(store.Submission{Source: "urgent", Priority: 1})
	b.turn(w, 0, []engine.Report{completed(b.claim(w, ingest))})
	if out := b.turn(w, 1, []engine.Report{completed(mine)}); !out.MoreReady[transcode] || !out.MoreReady[metadata] {
		t.Errorf("left is %v, want transcode and metadata", out.MoreReady)
	}
}

func TestTurnAfterAPlaceClaimsOnlyWhatWasSubmittedLaterWithTheSamePriority(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	out := b.turn(w, 1, nil, ingest)
	place := out.LastPosition[ingest]
	if place != (engine.Position{Task: out.Claims[0].Task}) {
		t.Fatalf("the last one's place is %+v", place)
	}
	later := b.submit()
	b.submission(store.Submission{Source: "urgent", Priority: 1})
	b.submission(store.Submission{Source: "can wait", Priority: -1})
	b.exec("update tasks set ingest_status = 'pending', ingest_token = null, ingest_locked_at = null, ingest_locked_by = null where ingest_status = 'inprogress'")

	in := turn(w, 5, nil, ingest)
	in.After = make([]engine.Position, 5)
	in.After[ingest] = place
	out, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Claims) != 1 || out.Claims[0].Task != later || out.Granted[ingest] != 1 || out.Requested[ingest] != 5 {
		t.Errorf("claims are %+v, found %d of %d; want the one submitted later", out.Claims, out.Granted[ingest], out.Requested[ingest])
	}
}

func TestWorkerThatWasGivenUpClaimsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	held := b.claim(w, ingest)
	b.submit()
	b.exec("update workers set lost_at = now()")
	out := b.turn(w, 5, []engine.Report{completed(held)}, ingest)
	if len(out.Claims) != 0 || len(out.Stale) != 0 {
		t.Errorf("claims are %+v and stale %+v; want none: what it did still counts", out.Claims, out.Stale)
	}
}

func TestPipelineOfOneStageTakesEveryKindOfReport(t *testing.T) {
	t.Parallel()
	g, err := store.NewGraph("single", store.Node{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	s := newTables(pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL())), g)
	w, err := s.RegisterWorker(t.Context(), store.Worker{Host: "test", PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	var ids []store.ID
	for range 3 {
		r, err := s.Submit(t.Context(), store.Submission{Source: "a"})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	in := engine.ExchangeRequest{Worker: w, FreeSlots: []int{3}, ClaimFrom: []bool{true}, OnlyTasks: ids}
	out, err := s.Exchange(t.Context(), in)
	if err != nil || len(out.Claims) != 3 {
		t.Fatalf("%+v, %v", out.Claims, err)
	}
	released := engine.Report{Task: ids[2], Token: out.Claims[2].Token, Outcome: engine.Released}
	in.Reports = []engine.Report{completed(out.Claims[0]), failed(out.Claims[1], 0), released}
	if out, err = s.Exchange(t.Context(), in); err != nil || len(out.Claims) != 2 || out.Claims[0].Task != ids[1] {
		t.Errorf("%+v, %v; want the two that were not completed", out.Claims, err)
	}
}
