package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestCancelTakesRunningWorkFromItsWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	two := b.turn(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	heard := b.listen("cuelight_video")
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.want(id, done, cancelled, cancelled, cancelled, cancelled)
	if h := b.history(id); len(h) != 3 || h[1].Outcome != "cancelled" || h[2].Outcome != "cancelled" || h[1].Host != "test" {
		t.Errorf("history is %+v, want both claims as cancelled", h)
	}
	if len(heard()) == 0 {
		t.Error("workers were not told")
	}
	if lost, err := b.beat(w, two...); err != nil || len(lost) != 2 {
		t.Errorf("beat says %d claims are lost, want 2: %v", len(lost), err)
	}
	if out := b.turn(w, 1, []engine.Report{completed(two[0])}); len(out.Stale) != 1 || !out.Stale[0].Cancelled || len(out.Claims) != 0 {
		t.Errorf("work on a cancelled task was taken: %+v", out)
	}
	if task := b.get(id); task.Status != cancelled || !task.IsFinished(b.Graph()) {
		t.Errorf("task is %s, settled %t", task.Status, task.IsFinished(b.Graph()))
	}
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Errorf("cancelling again: %v", err)
	}
	if err := b.Cancel(t.Context(), store.ID{1}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("cancelling nothing: %v", err)
	}
}

func TestRetryResumesFromWhatIsMissing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	two := b.turn(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	r := failed(two[0], 0)
	r.Dead = true
	b.turn(w, 1, []engine.Report{r, completed(two[1])})
	b.want(id, done, dead, done, pending, pending)
	if err := b.Retry(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	b.want(id, done, pending, done, pending, pending)
	c := b.claim(w, transcode)
	if c.Attempt != 1 {
		t.Errorf("attempts begin at %d, want 1", c.Attempt)
	}
	b.finish(w, c)
	if got := b.get(id).Status; got != done {
		t.Errorf("task is %s", got)
	}
}

func TestRetryFromAStageTakesItFromItsWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	two := b.turn(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	if err := b.Retry(t.Context(), id, "ingest"); err != nil {
		t.Fatal(err)
	}
	b.want(id, pending, pending, pending, pending, pending)
	if lost, err := b.beat(w, two...); err != nil || len(lost) != 2 {
		t.Errorf("beat says %d are lost, want both: %v", len(lost), err)
	}
	for name, err := range map[string]error{
		"unknown task":  b.Retry(t.Context(), store.ID{1}, ""),
		"unknown stage": b.Retry(t.Context(), id, "nonsense"),
	} {
		if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrNoStage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRetryAllTakesOnlyWhatMatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	var ids []store.ID
	for i := range 6 {
		ids = append(ids, b.submission(store.Submission{Source: fmt.Sprint("v", i), UserID: fmt.Sprint("u", i%2)}))
	}
	for i, c := range b.turn(w, 6, nil, ingest).Claims {
		r := failed(c, 0)
		r.Dead = i < 4
		r.Error = fmt.Sprint("disk ", i)
		b.turn(w, 0, []engine.Report{r})
	}
	if r, err := b.RetryAll(t.Context(), store.Filter{Error: "disk 0"}, "", store.RetryAllOptions{}); err != nil || r.Retried != 1 {
		t.Errorf("retried %+v by error, %v; want 1", r, err)
	}
	if r, err := b.RetryAll(t.Context(), store.Filter{Status: dead, UserID: "u1"}, "", store.RetryAllOptions{}); err != nil || r.Retried != 2 {
		t.Errorf("retried %+v of the user's dead, %v; want 2", r, err)
	}
	if got := b.statuses(ids[2])[ingest]; got != dead {
		t.Errorf("a task that does not match became %s", got)
	}
}

func TestOverriddenTasksAreNeverClaimedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	w := b.worker()
	running, waiting := b.submit(), b.submit()
	held := b.claim(w, ingest)

	by, err := b.Override(ctx, []store.ID{running, waiting}, store.Submission{Source: "better.mp4"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []store.ID{running, waiting} {
		if got := b.get(id).OverriddenBy; got != by.ID {
			t.Errorf("overridden_by is %s, want %s", got, by.ID)
		}
		if err := b.Retry(ctx, id, ""); !errors.Is(err, store.ErrOverridden) {
			t.Errorf("retry of a replaced task: %v, want ErrOverridden", err)
		}
	}
	if lost, _ := b.beat(w, held); len(lost) != 1 {
		t.Error("work on a replaced task goes on")
	}
	out := b.turn(w, 9, nil, ingest)
	if len(out.Claims) != 1 || out.Claims[0].Task != by.ID {
		t.Errorf("claims are %+v, want the new task only", out.Claims)
	}

	for name, old := range map[string][]store.ID{"again": {running}, "not there": {by.ID, {1}}} {
		_, err := b.Override(ctx, old, store.Submission{Source: "c", RequestID: name})
		if !errors.Is(err, store.ErrOverridden) && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := b.List(ctx, store.ListQuery{Filter: store.Filter{RequestID: name}}); len(left) != 0 {
			t.Errorf("%s: the new task is there although nothing was replaced", name)
		}
	}
}

func TestListPagesThroughAllThatMatchOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for i := range 25 {
		b.submission(store.Submission{Source: fmt.Sprint("s", i), UserID: []string{"", "u"}[i%2]})
	}
	var seen []string
	f := store.Filter{UserID: "u", Limit: 5}
	for {
		page, err := b.List(ctx, store.ListQuery{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, task := range page {
			seen = append(seen, task.Source)
		}
		f.After = page[len(page)-1].ID
	}
	if len(seen) != 12 || seen[0] != "s23" || seen[11] != "s1" {
		t.Errorf("saw %v, want the 12 odd ones, newest first", seen)
	}
	for name, c := range map[string]struct {
		f    store.Filter
		want int
	}{
		"status":       {store.Filter{Status: pending}, 25},
		"other status": {store.Filter{Status: dead}, 0},
		"stage":        {store.Filter{Stage: "ingest", StageStatus: pending}, 25},
		"source":       {store.Filter{Source: "s1"}, 11},
	} {
		if got, err := b.List(ctx, store.ListQuery{Filter: c.f}); err != nil || len(got) != c.want {
			t.Errorf("%s: %d tasks, %v; want %d", name, len(got), err, c.want)
		}
	}
	if _, err := b.List(ctx, store.ListQuery{Filter: store.Filter{Stage: "nonsense"}}); !errors.Is(err, store.ErrNoStage) {
		t.Errorf("unknown stage: %v", err)
	}
}

func TestFindTakesTheEndOfAnID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit()
	b.submit()
	for _, text := range []string{id.String(), id.String()[24:], id.String()[30:]} {
		if got, err := b.Find(t.Context(), text); err != nil || got != id {
			t.Errorf("%s finds %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "zz", "%%%%", "abc", "ffffffffffff"} {
		if _, err := b.Find(t.Context(), text); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%q: %v, want ErrNotFound", text, err)
		}
	}
}

func TestCountsAreByStageAndStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.submit()
	b.finish(w, b.claim(w, ingest))
	b.submit()
	got, err := b.Counts(t.Context())
	if err != nil || got[ingest][done] != 1 || got[ingest][pending] != 1 || got[publish][done] != 1 {
		t.Errorf("counts are %v, %v", got, err)
	}
}

func TestSilentWorkerIsGivenUpAndItsClaimsAreFree(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id, silent, beating := b.submit(), b.worker(), b.worker()
	c := b.claim(silent, ingest)
	b.exec("update workers set heartbeat_at = now() - interval '1 minute' where id = $1", silent)
	b.exec("update tasks set ingest_locked_at = now() - interval '1 minute'")
	sweep := engine.SweepRequest{Credit: &engine.OutageCredit{}, MaxAttempts: []int{2, 2, 2, 2, 2}}

	out, err := b.Sweep(ctx, sweep)
	if err != nil || out.ExpiredClaims != 1 || !slices.Equal(out.ExpiredWorkers, []store.ID{silent}) || !out.MoreReady[ingest] {
		t.Fatalf("sweep found %+v, %v; want one worker lost and its claim expired", out, err)
	}
	b.want(id, failing, pending, pending, pending, pending)
	if _, err := b.beat(silent); !errors.Is(err, store.ErrWorkerUnknown) {
		t.Errorf("a worker that was given up may go on: %v", err)
	}
	if out := b.turn(silent, 0, []engine.Report{completed(c)}); len(out.Stale) != 1 || out.Stale[0].Cancelled {
		t.Error("its late report was taken, or for one of a cancelled task")
	}
	again := b.claim(beating, ingest)
	if again.Attempt != 2 {
		t.Errorf("attempt is %d: an expired claim counts", again.Attempt)
	}
	if out, err := b.Sweep(ctx, sweep); err != nil || out.ExpiredClaims != 0 {
		t.Errorf("a living worker's claim was taken: %+v, %v", out, err)
	}
	b.exec("update workers set heartbeat_at = now() - interval '1 minute' where id = $1", beating)
	b.exec("update tasks set ingest_locked_at = now() - interval '1 minute'")
	if out, err := b.Sweep(ctx, sweep); err != nil || out.ExpiredClaims != 1 {
		t.Errorf("the second worker's claim is not free: %+v, %v", out, err)
	}
	b.want(id, dead, pending, pending, pending, pending)
	if h := b.history(id); len(h) != 2 || h[0].Outcome != "expired" || h[1].Outcome != "expired" {
		t.Errorf("history is %+v", h)
	}
}

func TestWhatAWorkerLeftBehindWhenItStoppedIsFreeAndDoesNotCount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	c := b.claim(w, ingest)
	if err := b.DeregisterWorker(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if out, err := b.Sweep(t.Context(), engine.SweepRequest{MaxAttempts: []int{1, 1, 1, 1, 1}}); err != nil || out.ExpiredClaims != 1 {
		t.Errorf("a worker that left holds on to its claim: %+v, %v", out, err)
	}
	b.want(id, pending, pending, pending, pending, pending)
	if h := b.history(id); len(h) != 1 || h[0].Outcome != "released" || h[0].Token != c.Token {
		t.Errorf("history is %+v", h)
	}
	if again := b.claim(b.worker(), ingest); again.Attempt != 1 {
		t.Errorf("attempt is %d", again.Attempt)
	}
}

func TestWhatAFailedTurnLeavesOpenCanBeFoundOut(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	b.submit()
	w := b.worker()
	c := b.claim(w, ingest)
	held, err := b.FindHeldClaims(ctx, w)
	if err != nil || len(held) != 1 || held[0].Token != c.Token || held[0].Source != c.Source {
		t.Errorf("held is %+v, %v", held, err)
	}
	r := completed(c)
	if got, err := b.FindRecordedOutcomes(ctx, []engine.Report{r}); err != nil || got[c.Token] {
		t.Errorf("settled before it was reported: %v", err)
	}
	b.turn(w, 0, []engine.Report{r})
	if got, err := b.FindRecordedOutcomes(ctx, []engine.Report{r}); err != nil || !got[c.Token] {
		t.Errorf("not settled after it was reported: %v", err)
	}
}

func TestMigrateMakesTheTablesOnceHoweverManyCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	g, err := store.NewGraph("other", store.Node{Name: "only"})
	if err != nil {
		t.Fatal(err)
	}
	s := newTables(b.pool, g)
	if err := s.Check(ctx); !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("check without tables: %v", err)
	}
	made := make(chan int, 6)
	for range cap(made) {
		go func() {
			from, err := s.Migrate(ctx)
			if err != nil {
				t.Error(err)
			}
			made <- from
		}()
	}
	var from []int
	for range cap(made) {
		from = append(from, <-made)
	}
	slices.Sort(from)
	now := store.SchemaVersion
	if !slices.Equal(from, []int{0, now, now, now, now, now}) {
		t.Errorf("versions found were %v, want one that found nothing", from)
	}
	if err := s.Check(ctx); err != nil {
		t.Error(err)
	}
}

func TestTablesOfAnotherVersionOrShapeAreLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, c := range []struct {
		change string
		want   error
	}{
		{"version = 99", store.ErrSchemaNewer},
		{"version = 1, shape = 'ingest'", store.ErrSchemaShape},
	} {
		b.exec("update cuelight_schema set " + c.change)
		if err := b.Check(ctx); !errors.Is(err, c.want) {
			t.Errorf("%s: check says %v, want %v", c.change, err, c.want)
		}
		if _, err := b.Migrate(ctx); !errors.Is(err, c.want) {
			t.Errorf("%s: migrate says %v, want %v", c.change, err, c.want)
		}
	}
	b.exec("update cuelight_schema set version = 0, shape = $1", b.Graph().String())
	if err := b.Check(ctx); !errors.Is(err, store.ErrSchemaOlder) {
		t.Errorf("older tables: check says %v", err)
	}
}
