package metrics

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func task(n uint64) store.ID {
	var id store.ID
	binary.BigEndian.PutUint64(id[:], n)
	return id
}

// newMetrics returns the Metrics of a process with two slots for each stage.
func newMetrics() *Metrics {
	slots := make(map[string]int)
	for _, s := range store.Video().Stages() {
		slots[s] = 2
	}
	return New(Options{Graph: store.Video(), Slots: slots, Version: "1.2.3"})
}

// gathered returns the series with these labels from a scrape, or nil.
func gathered(t testing.TB, g prometheus.Gatherer, name string, labels ...string) *dto.Metric {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			for i := 0; i < len(labels); i += 2 {
				if label(m, labels[i]) != labels[i+1] {
					continue series
				}
			}
			return m
		}
	}
	return nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// want checks the value of a counter or gauge, or the number of observations of a histogram.
func want(t testing.TB, m *Metrics, value float64, name string, labels ...string) {
	t.Helper()
	s := gathered(t, m.registry, "cuelight_"+name, labels...)
	if s == nil {
		t.Errorf("%s %q is missing", name, labels)
		return
	}
	got := s.GetCounter().GetValue() + s.GetGauge().GetValue() + float64(s.GetHistogram().GetSampleCount())
	if got != value {
		t.Errorf("%s %q is %v, want %v", name, labels, got, value)
	}
}

func TestObserve_CountsClaimsByOutcome(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	kinds := slices.Sorted(maps.Keys(outcomes))
	for i, k := range kinds {
		for n := range i + 1 {
			id := task(uint64(n))
			m.Observe(stages.Event{Kind: stages.StageStarted, Stage: "transcode", Task: id, Attempt: 1})
			m.Observe(stages.Event{Kind: k, Stage: "transcode", Task: id, Attempt: 1, Duration: time.Minute})
		}
	}
	for i, k := range kinds {
		want(t, m, float64(i+1), "stage_attempts_total", "stage", "transcode", "outcome", outcomes[k])
		want(t, m, float64(i+1), "stage_duration_seconds", "stage", "transcode", "outcome", outcomes[k])
		want(t, m, 0, "stage_attempts_total", "stage", "ingest", "outcome", outcomes[k])
	}
	want(t, m, float64(slices.Index(kinds, stages.AttemptFailed)+1), "retries_total", "stage", "transcode")
	sum := gathered(t, m.registry, "cuelight_stage_duration_seconds", "stage", "transcode", "outcome",
		"completed").GetHistogram().GetSampleSum()
	if want := 60 * float64(slices.Index(kinds, stages.StageCompleted)+1); sum != want {
		t.Errorf("the sum is %v s, want %v", sum, want)
	}
}

func TestObserve_ClaimThatDidNotStartHasNoDurationAndNoSlot(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.Observe(stages.Event{Kind: stages.ClaimReleased, Stage: "ingest", Task: task(1), Attempt: 1})
	want(t, m, 1, "stage_attempts_total", "stage", "ingest", "outcome", "released")
	want(t, m, 0, "stage_duration_seconds", "stage", "ingest", "outcome", "released")
	want(t, m, 0, "worker_slots", "stage", "ingest", "state", "busy")
	want(t, m, 2, "worker_slots", "stage", "ingest", "state", "free")
}

func TestObserve_SlotIsBusyFromStartToEnd(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	slots := func(busy, free float64) {
		t.Helper()
		want(t, m, busy, "worker_slots", "stage", "assemble", "state", "busy")
		want(t, m, free, "worker_slots", "stage", "assemble", "state", "free")
	}
	slots(0, 2)
	m.Observe(stages.Event{Kind: stages.StageStarted, Stage: "assemble", Task: task(1), Attempt: 1})
	slots(1, 1)
	m.Observe(stages.Event{Kind: stages.StageStarted, Stage: "assemble", Task: task(2), Attempt: 1})
	slots(2, 0)
	m.Observe(stages.Event{
		Kind: stages.StageCompleted, Stage: "assemble", Task: task(1), Attempt: 1, Duration: time.Second,
	})
	slots(1, 1)
	// The event of a lost attempt may arrive after the start of the next one.
	m.Observe(stages.Event{Kind: stages.StageStarted, Stage: "assemble", Task: task(2), Attempt: 2})
	m.Observe(stages.Event{Kind: stages.ClaimRevoked, Stage: "assemble", Task: task(2), Attempt: 1, Duration: time.Second})
	slots(1, 1)
	m.Observe(stages.Event{Kind: stages.WorkerStarted})
	slots(0, 2)
}

func TestObserve_TakesSpeedFromProgress(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	for _, speed := range []float64{0, 3.5, 0, 4.5} {
		m.Observe(stages.Event{
			Kind: stages.StageProgress, Stage: "transcode", Task: task(1), Progress: stages.Progress{Speed: speed},
		})
	}
	want(t, m, 2, "ffmpeg_speed_ratio")
	if sum := gathered(t, m.registry, "cuelight_ffmpeg_speed_ratio").GetHistogram().GetSampleSum(); sum != 8 {
		t.Errorf("the sum is %v, want 8", sum)
	}
}

func TestObserve_CountsSweepClaimsAndExpiredAttempts(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.Observe(stages.Event{Kind: stages.WakeMissed, Stage: "publish", Count: 3})
	m.Observe(stages.Event{Kind: stages.WakeMissed, Stage: "publish", Count: 2})
	m.Observe(stages.Event{Kind: stages.AttemptsExpired, Count: 4})
	m.Observe(stages.Event{Kind: stages.WorkerLost, LostWorker: task(1)})
	want(t, m, 5, "sweep_claims_total", "stage", "publish")
	want(t, m, 0, "sweep_claims_total", "stage", "ingest")
	want(t, m, 4, "attempts_expired_total")
	want(t, m, 1, "workers_lost_total")
}

func TestObserve_CountsDeletions(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	for range 2 {
		m.Observe(stages.Event{Kind: stages.RowsPruned, Pruned: store.PruneResult{Finished: 1, Dead: 2, Workers: 3}, Count: 4})
		m.Observe(stages.Event{Kind: stages.EventsPruned, Count: 5})
		m.Observe(stages.Event{Kind: stages.TaskPurged})
		m.ObserveDeletedDeliveries(6)
		m.ObserveSourceCopies(7)
	}
	m.Observe(stages.Event{Kind: stages.TaskUnpublished})
	const rows = "rows_pruned_total"
	want(t, m, 2, rows, "kind", "finished_task")
	want(t, m, 4, rows, "kind", "dead_task")
	want(t, m, 6, rows, "kind", "worker")
	want(t, m, 8, rows, "kind", "audit_entry")
	want(t, m, 10, rows, "kind", "event")
	want(t, m, 12, rows, "kind", "delivery")
	want(t, m, 2, "tasks_purged_total")
	want(t, m, 14, "source_copies_removed_total")
	want(t, m, 1, "tasks_unpublished_total")
}

func TestObserve_MeasuresQueueWaitAndWakeLatency(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.Observe(stages.Event{Kind: stages.StageStarted, Stage: "metadata", Task: task(1)}) // claimed with the completion of ingest
	m.Observe(stages.Event{Kind: stages.StageStarted, Stage: "metadata", Task: task(2), Waited: 2 * time.Second})
	m.Observe(stages.Event{
		Kind: stages.StageStarted, Stage: "metadata", Task: task(3), Waited: 3 * time.Millisecond, Woken: true,
	})
	want(t, m, 3, "stage_queue_wait_seconds", "stage", "metadata")
	want(t, m, 1, "wake_latency_seconds")
	if sum := gathered(t, m.registry, "cuelight_wake_latency_seconds").GetHistogram().GetSampleSum(); sum != 0.003 {
		t.Errorf("the sum is %v s, want 0.003", sum)
	}
}

func TestObserveListener_CountsReconnectionsOnly(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	want(t, m, 0, "listener_connected")
	for _, step := range []struct {
		connected         bool
		state, reconnects float64
	}{{false, 0, 0}, {true, 1, 0}, {true, 1, 0}, {false, 0, 0}, {true, 1, 1}, {false, 0, 1}, {true, 1, 2}} {
		m.ObserveListener(step.connected, errors.New("connection lost"))
		want(t, m, step.state, "listener_connected")
		want(t, m, step.reconnects, "listener_reconnects_total")
	}
}

func TestObserveDelivery_CountsByTypeAndOutcomeWithBoundedLabels(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.ObserveDelivery("completed", "delivered")
	m.ObserveDelivery("completed", "delivered")
	m.ObserveDelivery("dead", "failed")
	m.ObserveDelivery("unknown type", "dead")
	m.ObserveDelivery("completed", "unknown outcome")
	want(t, m, 2, "webhook_deliveries_total", "type", "completed", "outcome", "delivered")
	want(t, m, 1, "webhook_deliveries_total", "type", "dead", "outcome", "failed")
	want(t, m, 1, "webhook_deliveries_total", "type", "other", "outcome", "dead")
	want(t, m, 1, "webhook_deliveries_total", "type", "completed", "outcome", "other")
}

func TestObserve_IgnoresUnknownStages(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	before := countSeries(t, m)
	for _, k := range append(slices.Collect(maps.Keys(outcomes)), stages.StageStarted, stages.WakeMissed,
		stages.StageProgress) {
		m.Observe(stages.Event{Kind: k, Stage: "elsewhere", Task: task(1), Duration: time.Second})
	}
	if after := countSeries(t, m); after != before {
		t.Errorf("%d series before, %d after", before, after)
	}
}

// There are millions of tasks, so events must not create series.
func TestObserve_CreatesNoSeries(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	before := countSeries(t, m)
	for n := range uint64(1000) {
		m.Observe(stages.Event{Kind: stages.StageStarted, Stage: "ingest", Task: task(n), Worker: task(n)})
		m.Observe(stages.Event{
			Kind: stages.AttemptFailed, Stage: "ingest", Task: task(n), Worker: task(n), Duration: time.Second, Err: errDown,
		})
	}
	if after := countSeries(t, m); after != before {
		t.Errorf("%d series before, %d after", before, after)
	}
}

func countSeries(t *testing.T, m *Metrics) int {
	t.Helper()
	n, err := testutil.GatherAndCount(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestObserve_IsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	var all sync.WaitGroup
	for g := range uint64(8) {
		all.Go(func() {
			for n := range uint64(500) {
				id := task(g<<32 | n)
				m.Observe(stages.Event{Kind: stages.StageStarted, Stage: "ingest", Task: id, Attempt: 1})
				m.Observe(stages.Event{Kind: stages.StageProgress, Stage: "ingest", Task: id, Progress: stages.Progress{Speed: 1}})
				m.Observe(stages.Event{Kind: stages.StageCompleted, Stage: "ingest", Task: id, Attempt: 1, Duration: time.Second})
				m.ObserveListener(n%2 == 0, nil)
				m.ObserveDelivery("completed", "delivered")
			}
		})
	}
	for range 5 {
		countSeries(t, m)
	}
	all.Wait()
	want(t, m, 4000, "stage_attempts_total", "stage", "ingest", "outcome", "completed")
	want(t, m, 0, "worker_slots", "stage", "ingest", "state", "busy")
}

// newFullMetrics returns Metrics that export every metric.
func newFullMetrics(t testing.TB) (*Metrics, *pgxpool.Pool) {
	t.Helper()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool, `insert into workers (name, host, pid) values ('h', 'h', 1)`)
	m := New(Options{
		Graph: g, Slots: map[string]int{"ingest": 2}, Version: "1.2.3", Pool: pool, Dirs: []string{t.TempDir()},
		Database: NewDatabase(pool, g), KeepEvents: time.Hour,
	})
	m.ExportHTTPStreams(func() int { return 3 })
	for _, status := range []int{200, 301, 404, 500} { // a series exists from its first request
		m.ObserveHTTPRequest("GET /api/v1/tasks", status, time.Millisecond, false)
	}
	return m, pool
}

func TestObserveHTTPRequest_CountsByRoute(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.ExportHTTPStreams(func() int { return 7 })
	const list, stream = "GET /api/v1/tasks", "GET /api/v1/events/stream"
	m.ObserveHTTPRequest(list, 200, time.Second, false)
	m.ObserveHTTPRequest(list, 204, time.Second, false)
	m.ObserveHTTPRequest(list, 401, time.Second, false)
	m.ObserveHTTPRequest("", 404, time.Second, false)
	m.ObserveHTTPRequest(stream, 200, time.Hour, true)
	m.ObserveHTTPRequest(stream, 429, time.Second, false)
	want(t, m, 2, "http_requests_total", "route", list, "code", "2xx")
	want(t, m, 1, "http_requests_total", "route", list, "code", "4xx")
	want(t, m, 1, "http_requests_total", "route", "other", "code", "4xx")
	want(t, m, 1, "http_requests_total", "route", stream, "code", "2xx")
	want(t, m, 3, "http_request_duration_seconds", "route", list)
	want(t, m, 1, "http_request_duration_seconds", "route", stream)
	want(t, m, 7, "http_streams")
}

func TestMetrics_FollowNamingConventions(t *testing.T) {
	t.Parallel()
	m, _ := newFullMetrics(t)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, f := range families {
		if f.GetHelp() == "" {
			t.Errorf("%s has no help text", f.GetName())
		}
	}
}

func TestHandler_ExportsProcessAndDatabase(t *testing.T) {
	t.Parallel()
	m, pool := newFullMetrics(t)
	exec(t, pool, `insert into tasks (source) values ('a')`)
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("status %d, %v", w.Code, err)
	}
	for _, line := range []string{
		`cuelight_build_info{goversion="`, `version="1.2.3"} 1`, `cuelight_database_up 1`,
		`cuelight_tasks{stage="ingest",status="ready"} 1`,
		`cuelight_workers{state="idle"} 1`, `cuelight_workers{state="silent"} 0`,
		`cuelight_worker_heartbeat_age_seconds{worker="h:1"} `,
		`cuelight_pool_connections_max `, `cuelight_disk_free_bytes{dir="`, `go_goroutines `, `process_start_time_seconds `,
	} {
		if !strings.Contains(string(body), line) {
			t.Errorf("%s is missing", line)
		}
	}
}

func TestHandler_WorksWithoutADatabase(t *testing.T) {
	t.Parallel()
	db := &fakeDB{answer: func(context.Context) error { return errDown }}
	m := New(Options{Graph: store.Video(), Database: NewDatabase(db, store.Video())})
	want(t, m, 0, "database_up")
	if s := gathered(t, m.registry, "cuelight_tasks"); s != nil {
		t.Errorf("without an answer, the tasks are exported: %s", s)
	}
}

func TestHandler_ExportsAnOldSnapshotWithItsAge(t *testing.T) {
	t.Parallel()
	db := &fakeDB{}
	d := NewDatabase(db, store.Video())
	d.maxAge = time.Nanosecond
	m := New(Options{Graph: store.Video(), Database: d})
	want(t, m, 1, "database_up")
	db.answer = func(context.Context) error { return errDown }
	want(t, m, 0, "database_up")
	want(t, m, 0, "tasks", "stage", "ingest", "status", "ready")
	if age := gathered(t, m.registry, "cuelight_database_snapshot_age_seconds").GetGauge().GetValue(); age <= 0 {
		t.Errorf("the age is %v", age)
	}
}

func TestHandler_ExportsDiskSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := New(Options{Graph: store.Video(), Dirs: []string{dir, dir, filepath.Join(dir, "missing")}})
	free := gathered(t, m.registry, "cuelight_disk_free_bytes", "dir", dir)
	size := gathered(t, m.registry, "cuelight_disk_size_bytes", "dir", dir)
	if free == nil || size == nil {
		t.Fatal("no disk space is exported")
	}
	if f, s := free.GetGauge().GetValue(), size.GetGauge().GetValue(); f <= 0 || s < f {
		t.Errorf("%v of %v bytes are free", f, s)
	}
	if gathered(t, m.registry, "cuelight_disk_free_bytes", "dir", filepath.Join(dir, "missing")) != nil {
		t.Error("a missing directory has disk space")
	}
}

func TestHandler_SkipsADiskThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	c := newDiskCollector([]string{"hanging", "working"})
	answer, readings := make(chan struct{}), make(chan struct{}, 10)
	c.dirs[0].freeSpace = func(string) (int64, int64, error) { readings <- struct{}{}; <-answer; return 1, 1, nil }
	c.dirs[1].freeSpace = func(string) (int64, int64, error) { return 1, 1, nil }
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	for range 3 {
		if gathered(t, r, "cuelight_disk_free_bytes", "dir", "hanging") != nil {
			t.Error("the hanging disk is exported")
		}
		if gathered(t, r, "cuelight_disk_free_bytes", "dir", "working") == nil {
			t.Error("the working disk is not exported")
		}
	}
	if len(readings) != 1 {
		t.Errorf("%d readings, want 1", len(readings))
	}
	close(answer)
	<-c.dirs[0].read().done
}

func BenchmarkObserve(b *testing.B) {
	m := newMetrics()
	id := task(1)
	for _, e := range []stages.Event{
		{Kind: stages.StageProgress, Stage: "transcode", Task: id, Progress: stages.Progress{Speed: 3}},
		{Kind: stages.StageCompleted, Stage: "transcode", Task: id, Attempt: 1, Duration: time.Second},
		{Kind: stages.WakeMissed, Stage: "transcode", Count: 1},
	} {
		b.Run(string(e.Kind), func(b *testing.B) {
			for b.Loop() {
				m.Observe(e)
			}
		})
	}
	start := stages.Event{Kind: stages.StageStarted, Stage: "transcode", Task: id, Attempt: 1}
	end := stages.Event{Kind: stages.StageCompleted, Stage: "transcode", Task: id, Attempt: 1, Duration: time.Second}
	b.Run("start and end", func(b *testing.B) {
		for b.Loop() {
			m.Observe(start)
			m.Observe(end)
		}
	})
	b.Run("start and end, concurrently", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				m.Observe(start)
				m.Observe(end)
			}
		})
	})
}
