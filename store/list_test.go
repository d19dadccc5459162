package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestList_DoesNotFindHiddenPartsOfASource(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const url = "https://ann:s3cret@tv.example/a@b/clip.mp4?token=t0ken://x#fr4gment"
	b.submitTask(store.Submission{Source: url, Params: json.RawMessage(`{"title": "of ann:"}`)})
	b.submitTask(store.Submission{Source: "//bob:w0rd@tv.example/http://x"})
	b.submitTask(store.Submission{Source: "/films/what?#1 ann@home.mp4"})
	for part, want := range map[string][2]int{
		"":             {3, 3},
		"clip":         {1, 1},
		"https://tv":   {0, 0}, // in the shown form of a source, but not in the source
		"tv.example/a": {1, 1},
		"a@b":          {1, 1},
		"https":        {1, 1},
		"s3cret":       {1, 0},
		"ann:s":        {1, 0},
		"t0ken":        {1, 0},
		"?token":       {1, 0},
		"fr4gment":     {1, 0},
		"w0rd":         {1, 0},
		"what?#1 ann@": {1, 1}, // not a URL
		"ann:":         {1, 1}, // the title
	} {
		for i, shown := range []bool{false, true} {
			listed, err := b.List(t.Context(), store.ListQuery{Filter: store.Filter{Source: part, PublicSourceOnly: shown}})
			if err != nil {
				t.Fatal(err)
			}
			if len(listed) != want[i] {
				t.Errorf("%q, shown %t: %d tasks listed, want %d", part, shown, len(listed), want[i])
			}
		}
	}
}

func TestStoppedWorkers_ReturnsPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var stopped []store.ID
	for i := range 5 {
		id := b.worker()
		var err error
		switch i {
		case 2: // it still works
			continue
		case 3:
			_, err = b.ExpireWorkers(t.Context(), []store.ID{id})
		default:
			err = b.DeregisterWorker(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
		stopped = append(stopped, id)
	}
	slices.Reverse(stopped)
	var listed []store.ID
	var before store.ID
	for range 3 {
		page, err := b.StoppedWorkers(t.Context(), before, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range page {
			if w.StoppedAt == nil && w.LostAt == nil || w.Host != "test" {
				t.Errorf("listed as stopped: %+v", w)
			}
			listed = append(listed, w.ID)
			before = w.ID
		}
	}
	if !slices.Equal(listed, stopped) {
		t.Errorf("listed %v, want %v", listed, stopped)
	}
}

func TestDeadStages_PageEndsBetweenTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 2 {
		b.submit()
	}
	b.exec(`update tasks set ingest_status = 'completed', metadata_status = 'dead', transcode_status = 'dead'`)
	var got []string
	var after store.ID
	for range 3 {
		page, _, err := b.DeadStages(t.Context(), report.DeadFilter{}, after, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page {
			got, after = append(got, l.Stage), l.Task
		}
	}
	if want := []string{"transcode", "metadata", "transcode", "metadata"}; !slices.Equal(got, want) {
		t.Errorf("dead stages are %v, want %v", got, want)
	}
}

// The wait of a retried or scheduled task does not count from its submission.
func TestClaim_WaitedCountsFromWhenItWasReady(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before string // SQL on a task that was submitted two days ago
		least  time.Duration
		most   time.Duration
	}{
		"submitted": {`select`, 48 * time.Hour, 49 * time.Hour},
		"dead, retried": {
			`update tasks set ingest_status = 'dead'; select cuelight_video_retry(id) from tasks`, 0, time.Hour,
		},
		"retried from ingest": {`select cuelight_video_retry(id, 'ingest') from tasks`, 0, time.Hour},
		"never started, cancelled, retried": {
			`select cuelight_video_cancel(id) from tasks; select cuelight_video_retry(id) from tasks`, 0, time.Hour,
		},
		"scheduled for an hour ago": {`update steps set status = 'waiting', run_at = now() - interval '1 hour'`, time.Hour, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(`insert into tasks (source, created_at) values ('a', now() - interval '2 days')`)
			b.exec(`update steps set ready_at = now() - interval '2 days'`)
			if _, err := b.pool.Exec(t.Context(), c.before, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatal(err)
			}
			w := b.worker()
			in := exchangeRequest(w, 1, nil, ingest)
			in.PromoteDue = true
			out, err := b.Exchange(t.Context(), in)
			if err != nil || len(out.Claims) != 1 || out.Claims[0].Waited < c.least || out.Claims[0].Waited > c.most {
				t.Errorf("the claims are %+v, %v", out.Claims, err)
			}
		})
	}
}

// The retry of one stage does not change the wait of another.
func TestClaim_WaitedIgnoresRetriesOfOtherStages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into tasks (source, created_at, ingest_status, transcode_status)
		values ('a', now() - interval '2 days', 'completed', 'failed')`)
	b.exec(`update steps set ready_at = now() - interval '2 days'`)
	b.exec(`update steps set status = 'waiting', attempts = 1, run_at = now() - interval '1 minute' where stage = 'transcode'`)
	in := exchangeRequest(b.worker(), 1, nil, transcode, metadata)
	in.PromoteDue = true
	out, err := b.Exchange(t.Context(), in)
	must(t, err)
	for _, c := range out.Claims {
		if c.Stage == metadata && c.Waited >= 48*time.Hour {
			return
		}
	}
	t.Errorf("the claims are %+v", out.Claims)
}

// The postponement of one stage does not change the wait of another.
func TestClaim_WaitedIgnoresPostponedOtherStages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.exec(`insert into tasks (source, created_at, ingest_status) values ('a', now() - interval '2 days', 'completed')`)
	b.exec(`update steps set ready_at = now() - interval '2 days'`)
	r := failed(b.claim(w, transcode), time.Hour)
	r.Outcome = engine.Released
	b.exchange(w, 0, []engine.Report{r})
	b.exec(`update steps set run_at = now() - interval '1 minute' where stage = 'transcode'`)
	_, err := b.Sweep(t.Context(), engine.SweepRequest{Worker: w, MaxAttempts: []int{3, 3, 3, 3, 3}})
	must(t, err)
	out, err := b.Exchange(t.Context(), exchangeRequest(w, 1, nil, transcode, metadata))
	must(t, err)
	if c := out.Claims; len(c) != 2 || c[0].Waited < time.Minute || c[0].Waited > time.Hour || c[1].Waited < 48*time.Hour {
		t.Errorf("the claims are %+v", c)
	}
}

func TestSubmit_StoresOnlyValidTraceparents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const id, parent = "0123456789abcdef0123456789abcdef", "0123456789abcdef"
	for text, valid := range map[string]bool{
		"00-" + id + "-" + parent + "-01":                       true,
		"cc-" + id + "-" + parent + "-01-future":                true,
		"cc-" + id + "-" + parent + "-01":                       true,
		"00-" + id + "-" + parent + "-01-suffix":                false,
		"ff-" + id + "-" + parent + "-01":                       false,
		"00-00000000000000000000000000000000-" + parent + "-01": false,
		"00-" + id + "-0000000000000000-01":                     false,
		"00-" + strings.ToUpper(id) + "-" + parent + "-01":      false,
	} {
		got := ""
		task := b.submitTask(store.Submission{Source: "a.mp4", Traceparent: text})
		err := b.pool.QueryRow(t.Context(), `select coalesce(traceparent, '') from tasks where id = $1`, task).Scan(&got)
		if err != nil {
			t.Fatal(err)
		}
		if (got == text) != valid || !valid && got != "" {
			t.Errorf("%s is stored as %q", text, got)
		}
	}
}

func TestResult_KeepsTheSettingsOfTheCallersTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit()
	tx, err := b.pool.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	const settings = `select concat_ws(' ', current_setting('lock_timeout'), current_setting('application_name'))`
	var before, after string
	must(t, tx.QueryRow(t.Context(), settings).Scan(&before))
	if _, err := b.WithTx(tx).Result(t.Context(), id, "ingest"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("error %v; want ErrNotFound", err)
	}
	must(t, tx.QueryRow(t.Context(), settings).Scan(&after))
	if after != before {
		t.Errorf("the transaction's settings are %q, and were %q", after, before)
	}
}
