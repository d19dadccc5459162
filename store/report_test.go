package store_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func ids(tasks []store.Task) []store.ID {
	var out []store.ID
	for _, t := range tasks {
		out = append(out, t.ID)
	}
	return out
}

func TestList_FiltersAndOrders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	dead := b.submit()
	c := b.claim(w, ingest)
	b.exchange(w, 0, []engine.Report{
		{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Failed, Dead: true, Error: "work failed"},
	})
	retrying := b.submit()
	b.exchange(w, 0, []engine.Report{failed(b.claim(w, ingest), time.Hour)})
	running := b.submit()
	b.claim(w, ingest)
	ready := b.submit()
	for name, c := range map[string]struct {
		q    store.ListQuery
		want []store.ID
	}{
		"all, newest first": {store.ListQuery{}, []store.ID{ready, running, retrying, dead}},
		"all, oldest first": {store.ListQuery{OldestFirst: true}, []store.ID{dead, retrying, running, ready}},
		"running":           {store.ListQuery{State: store.StateRunning}, []store.ID{running}},
		"ready":             {store.ListQuery{State: store.StateReady}, []store.ID{ready}},
		"retrying":          {store.ListQuery{State: store.StateRetrying}, []store.ID{retrying}},
		"dead":              {store.ListQuery{State: store.StateDead}, []store.ID{dead}},
		"the second page":   {store.ListQuery{Filter: store.Filter{After: running, Limit: 1}}, []store.ID{retrying}},
		"a page, oldest first": {
			store.ListQuery{OldestFirst: true, Filter: store.Filter{After: retrying, Limit: 1}}, []store.ID{running},
		},
		"with a filter": {store.ListQuery{OldestFirst: true, Filter: store.Filter{Error: "failed"}}, []store.ID{dead, retrying}},
	} {
		tasks, err := b.List(t.Context(), c.q)
		if got := ids(tasks); err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %v, %v; want %v", name, got, err, c.want)
		}
	}
	stats, err := b.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stats.Running != 1 || stats.Ready != 1 || stats.Retrying != 1 || stats.Dead != 1 {
		t.Errorf("stats is %+v", stats)
	}
	if o := stats.Oldest(); o.Stage != "ingest" || o.OldestReady <= 0 || o.OldestReady > time.Minute {
		t.Errorf("the oldest ready stage is %+v", o)
	}
	_, err = b.List(t.Context(), store.ListQuery{Filter: store.Filter{Stage: "nonsense"}})
	if !errors.Is(err, store.ErrNoStage) {
		t.Errorf("error is %v", err)
	}
}

func TestStats_OldestReadyCountsFromTheLastChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(b bundle, w store.ID)
		want   time.Duration // how long ingest has been ready
	}{
		"the task was submitted": {func(bundle, store.ID) {}, time.Hour},
		"an attempt failed, and its retry became due": {func(b bundle, w store.ID) {
			b.exchange(w, 0, []engine.Report{failed(b.claim(w, ingest), time.Hour)})
			b.exec("update steps set run_at = now() - interval '10 minutes'")
			_, err := b.Sweep(b.t.Context(), engine.SweepRequest{Worker: w, MaxAttempts: []int{3, 3, 3, 3, 3}})
			must(b.t, err)
		}, 10 * time.Minute},
		"an attempt was released": {func(b bundle, w store.ID) {
			c := b.claim(w, ingest)
			b.exchange(w, 0, []engine.Report{{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Released}})
		}, 0},
		"retried by hand": {func(b bundle, _ store.ID) { b.exec("select cuelight_video_retry(id, 'ingest') from tasks") }, 0},
		"a lower priority waits too": {func(b bundle, _ store.ID) {
			b.exec("insert into tasks (source, priority) values ('b', -1)")
			b.exec("update steps set ready_at = now() - interval '2 hours' where rank = 1")
		}, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			w := b.worker()
			b.submit()
			b.exec("update steps set ready_at = now() - interval '1 hour'")
			c.change(b, w)
			stats, err := b.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i, want := range []time.Duration{c.want, 0, 0, 0, 0} {
				if got := stats.Stages[i]; got.OldestReady.Round(time.Minute) != want {
					t.Errorf("%+v; want %v", got, want)
				}
			}
		})
	}
}

// submitDead submits a task whose first stage becomes dead with the error.
func (b bundle) submitDead(w store.ID, source, class, err string) store.ID {
	b.t.Helper()
	id := b.submitTask(store.Submission{Source: source})
	c := b.claim(w, ingest)
	b.exchange(w, 0, []engine.Report{
		{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Failed, Dead: true, Class: class, Error: err},
	})
	return id
}

func TestDeadGroups_GroupByStageAndErrorPattern(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	first := b.submitDead(w, "a.mp4", "error", "disk /srv/1 is full: 12 MB left\nmore 1")
	second := b.submitDead(w, "b.mp4", "error", "disk /srv/two is full: 3.5 MB left\nmore 2")
	other := b.submitDead(w, "c.mp4", "refused", "the video is encrypted")
	replaced := b.submitDead(w, "d.mp4", "refused", "the video is encrypted")
	if _, err := b.Override(t.Context(), []store.ID{replaced}, store.Submission{Source: "e.mp4"}); err != nil {
		t.Fatal(err)
	}
	groups, err := b.DeadGroups(t.Context(), report.DeadFilter{}, 0)
	if err != nil || len(groups.Largest) != 2 || groups.Groups != 2 || groups.Stages != 3 {
		t.Fatalf("groups are %+v, %v", groups, err)
	}
	one, err := b.DeadGroups(t.Context(), report.DeadFilter{}, 1)
	if err != nil || len(one.Largest) != 1 || one.Groups != 2 || one.Stages != 3 {
		t.Errorf("one of the groups is %+v, %v", one, err)
	}
	disk, refused := groups.Largest[0], groups.Largest[1]
	if disk.Count != 2 || disk.Stage != "ingest" || disk.Pattern != "disk … is full: N MB left" ||
		disk.Newest.Before(*disk.Oldest) {
		t.Errorf("the larger group is %+v", disk)
	}
	if disk.Example != "disk /srv/two is full: 3.5 MB left\nmore 2" {
		t.Errorf("its example is %q", disk.Example)
	}
	if refused.Count != 1 || refused.Class != "refused" {
		t.Errorf("the other group is %+v", refused)
	}
	for name, c := range map[string]struct {
		f    report.DeadFilter
		want []store.ID
	}{
		"all":          {report.DeadFilter{}, []store.ID{other, second, first}},
		"a group":      {report.DeadFilter{Group: disk.Key}, []store.ID{second, first}},
		"a source":     {report.DeadFilter{Source: "b."}, []store.ID{second}},
		"an error":     {report.DeadFilter{Error: "more 1"}, []store.ID{first}},
		"selected":     {report.DeadFilter{Tasks: []store.ID{first, other}}, []store.ID{other, first}},
		"unknown user": {report.DeadFilter{UserID: "nobody"}, nil},
		"a stage":      {report.DeadFilter{Stage: "publish"}, nil},
	} {
		stages, _, err := b.DeadStages(t.Context(), c.f, store.ID{}, 0)
		var got []store.ID
		for _, l := range stages {
			got = append(got, l.Task)
		}
		n, _, err2 := b.CountDead(t.Context(), c.f)
		if err != nil || err2 != nil || fmt.Sprint(got) != fmt.Sprint(c.want) || n != len(c.want) {
			t.Errorf("%s: got %v and %d, %v, %v; want %v", name, got, n, err, err2, c.want)
		}
	}
	page, _, err := b.DeadStages(t.Context(), report.DeadFilter{}, other, 1)
	if err != nil || len(page) != 1 || page[0].Task != second || page[0].DiedAt == nil {
		t.Errorf("the second page is %+v, %v", page, err)
	}
	r, err := b.retryDead(t.Context(), report.DeadFilter{Group: disk.Key}, store.RetryAllOptions{})
	if err != nil || r.Retried != 2 {
		t.Errorf("retried %+v, %v", r, err)
	}
	b.wantStatuses(first, pending, pending, pending, pending, pending)
	b.wantStatuses(other, dead, pending, pending, pending, pending)
	if n, _, err := b.CountDead(t.Context(), report.DeadFilter{}); err != nil || n != 1 {
		t.Errorf("%d stages are still dead, %v", n, err)
	}
	_, err = b.retryDead(t.Context(), report.DeadFilter{Stage: "nonsense"}, store.RetryAllOptions{})
	if !errors.Is(err, store.ErrNoStage) {
		t.Errorf("error is %v", err)
	}
}

// submitFinished inserts a completed task of the given age. Each of its stages waited and
// worked for the given times.
func (b bundle) submitFinished(age, wait, work time.Duration) {
	b.t.Helper()
	b.exec(`with t as (
	   insert into tasks (id, source, created_at)
	   values ((lpad(to_hex(floor(extract(epoch
	     from now() - $1::interval) * 1000)::bigint), 12, '0') || '7' || right(replace(gen_random_uuid()::text, '-', ''), 19))::uuid,
	           'a.mp4', now() - $1::interval)
	   returning id, created_at)
	 insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome)
	 select id, gen_random_uuid(), stage, 1, gen_random_uuid(), created_at + n * $2::interval + (n - 1) * $3::interval,
	        created_at + n * ($2::interval + $3::interval), 'completed'
	   from t cross join (values ('ingest', 1), ('transcode', 2), ('metadata', 2), ('assemble', 3), ('publish', 4))
	     as s (stage, n)`,
		age, wait, work)
}

func TestLatency_ReportsWaitAndWorkOverTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 10 {
		b.submitFinished(30*time.Minute, time.Second, 10*time.Second)
		b.submitFinished(50*time.Minute, 3*time.Second, 20*time.Second)
	}
	b.submitFinished(2*time.Hour, time.Minute, time.Minute) // before the query's span
	got, err := b.Latency(t.Context(), report.LatencyQuery{Span: time.Hour, Points: 6})
	if err != nil || len(got.Points) != 2 || got.Step != 10*time.Minute {
		t.Fatalf("got %+v, %v", got, err)
	}
	for i, want := range []struct{ wait, work time.Duration }{
		{3 * time.Second, 20 * time.Second}, {time.Second, 10 * time.Second},
	} {
		p := got.Points[i]
		if p.Wait.N != 50 || p.Wait.P50.Round(time.Millisecond) != want.wait ||
			p.Wait.P99.Round(time.Millisecond) != want.wait {
			t.Errorf("point %d: wait is %+v, want %v", i, p.Wait, want.wait)
		}
		for _, w := range p.Work {
			if w.N != 10 || w.P95.Round(time.Millisecond) != want.work {
				t.Errorf("point %d: work is %+v, want %v", i, w, want.work)
			}
		}
	}
	if got.All.Wait.N != 100 || got.All.Wait.P99.Round(time.Millisecond) != 3*time.Second {
		t.Errorf("all together is %+v", got.All.Wait)
	}
	if _, err := b.Latency(t.Context(), report.LatencyQuery{Points: 501}); err == nil {
		t.Error("a query for 501 points was accepted")
	}
}

func TestLatency_IsEmptyWithoutTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	got, err := b.Latency(t.Context(), report.LatencyQuery{})
	if err != nil || len(got.Points) != 0 || len(got.All.Work) != 5 {
		t.Errorf("got %+v, %v", got, err)
	}
}
