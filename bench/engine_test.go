package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/scenario"
	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// Benchmarks of parts of the engine on a durable server, for benchstat:
//
//	go test -run '^$' -bench . -count 10 >new.txt

func TestMain(m *testing.M) {
	system.RunIfChild(systems)
	code := m.Run()
	if err := server.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// server is shared by all benchmarks; the first one starts it.
var server sharedServer

type sharedServer struct {
	once   sync.Once
	server *scenario.Server
	err    error
}

func (s *sharedServer) start(tb testing.TB) *scenario.Server {
	tb.Helper()
	s.once.Do(func() { s.server, s.err = scenario.StartServer(context.Background(), defaultDir, 2048) })
	if errors.Is(s.err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		tb.Skip(s.err)
	}
	must(tb, s.err)
	return s.server
}

func (s *sharedServer) close() error {
	if s.server == nil {
		return nil
	}
	return s.server.Close()
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// openStore returns a store with its tables in a database of its own.
func openStore(b *testing.B) (*pgxpool.Pool, *store.Store) {
	b.Helper()
	ctx := b.Context()
	url, drop, err := server.start(b).CreateDatabase(ctx)
	must(b, err)
	b.Cleanup(func() {
		if err := drop(); err != nil {
			b.Error(err)
		}
	})
	pool, err := pgxpool.New(ctx, url)
	must(b, err)
	b.Cleanup(pool.Close)
	s := store.New(pool, store.Video())
	_, err = s.Migrate(ctx)
	must(b, err)
	return pool, s
}

func submissions(n int) []store.Submission {
	subs := make([]store.Submission, n)
	for i := range subs {
		subs[i].Source = "a.mp4"
	}
	return subs
}

func BenchmarkSubmit(b *testing.B) {
	_, s := openStore(b)
	for b.Loop() {
		_, err := s.Submit(b.Context(), store.Submission{Source: "a.mp4"})
		must(b, err)
	}
}

func BenchmarkSubmitAll(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) {
			_, s := openStore(b)
			subs := submissions(n)
			for b.Loop() {
				_, err := s.SubmitAll(b.Context(), subs)
				must(b, err)
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

// BenchmarkExchange measures the dispatcher's round trip: it reports completed stages and
// receives claims of the next stages.
func BenchmarkExchange(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("reports=%d", n), func(b *testing.B) {
			w := newWorker(b)
			for b.Loop() {
				if len(w.held) < n {
					b.StopTimer()
					w.claim(b)
					b.StartTimer()
				}
				w.exchange(b, n)
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "reports/s")
		})
	}
}

// worker exchanges reports for claims.
type worker struct {
	*engine.Engine
	store *store.Store
	id    store.ID
	held  []engine.Claim
	free  []int
}

// batchSize is the number of tasks that are claimed at once.
const batchSize = 1000

func newWorker(b *testing.B) *worker {
	b.Helper()
	_, s := openStore(b)
	e := engine.New(s.DB(), s.Graph())
	id, err := e.RegisterWorker(b.Context(), store.Worker{Host: "bench", PID: os.Getpid(), Lease: store.DefaultLease})
	must(b, err)
	w := &worker{Engine: e, store: s, id: id, free: make([]int, len(s.Graph().Stages()))}
	for i := range w.free {
		w.free[i] = 2 * batchSize
	}
	return w
}

// claim submits tasks and claims their first stage.
func (w *worker) claim(b *testing.B) {
	b.Helper()
	_, err := w.store.SubmitAll(b.Context(), submissions(batchSize))
	must(b, err)
	claimFrom := make([]bool, len(w.free))
	claimFrom[0] = true
	out, err := w.Exchange(b.Context(), w.request(nil, claimFrom))
	must(b, err)
	if len(out.Claims) != batchSize {
		b.Fatalf("%d claims of %d tasks", len(out.Claims), batchSize)
	}
	w.held = append(w.held, out.Claims...)
}

// exchange reports the n oldest claims as completed.
func (w *worker) exchange(b *testing.B, n int) {
	reports := make([]engine.Report, n)
	for i, c := range w.held[:n] {
		reports[i] = engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Completed}
	}
	w.held = w.held[n:]
	out, err := w.Exchange(b.Context(), w.request(reports, slices.Repeat([]bool{true}, len(w.free))))
	must(b, err)
	if len(out.Stale)+len(out.Locked) > 0 {
		b.Fatalf("%d reports were rejected", len(out.Stale)+len(out.Locked))
	}
	w.held = append(w.held, out.Claims...)
}

func (w *worker) request(reports []engine.Report, claimFrom []bool) engine.ExchangeRequest {
	return engine.ExchangeRequest{
		Worker: w.id, Reports: reports, FreeSlots: w.free, ClaimFrom: claimFrom,
	}
}

// BenchmarkNotify measures the time from before a notification is sent until the listener
// has it.
func BenchmarkNotify(b *testing.B) {
	pool, s := openStore(b)
	channel := s.Graph().Channel("ingest")
	listening := make(chan struct{}, 1)
	listener := notify.New(pool, notify.Options{Channels: []string{channel}, OnChange: func(connected bool, err error) {
		if connected {
			listening <- struct{}{}
		}
	}})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- listener.Run(ctx) }()
	<-listening
	<-listener.C() // sent after connecting, for what was missed before
	listener.Take()
	for b.Loop() {
		_, err := pool.Exec(ctx, "select pg_notify($1, '')", channel)
		must(b, err)
		<-listener.C()
		listener.Take()
	}
	stop()
	must(b, <-ended)
}
