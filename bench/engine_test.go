package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/scenario"
	"github.com/cuelight/cuelight/bench/subprocess"
	"github.com/cuelight/cuelight/bench/transcodebench"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// The parts of the engine by themselves, each on the durable server of the
// other measurements, for benchstat:
//
//	go test -run '^$' -bench . -count 10 >new.txt

func TestMain(m *testing.M) {
	if subprocess.IsChild() {
		os.Exit(subprocess.Main(contestants()))
	}
	if transcodebench.IsChild() {
		os.Exit(transcodebench.Main())
	}
	code := m.Run()
	if err := server.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// server is that of all benchmarks, made when the first one needs it.
var server shared

type shared struct {
	once  sync.Once
	stand *scenario.Server
	err   error
}

func (s *shared) start(tb testing.TB) *scenario.Server {
	tb.Helper()
	s.once.Do(func() { s.stand, s.err = scenario.StartServer(context.Background(), defaultDir(), 2048) })
	if errors.Is(s.err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		tb.Skip(s.err)
	}
	must(tb, s.err)
	return s.stand
}

func (s *shared) close() error {
	if s.stand == nil {
		return nil
	}
	return s.stand.Close()
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// open returns a store with its tables, in a database of its own.
func open(b *testing.B) (*pgxpool.Pool, *store.Store) {
	b.Helper()
	ctx := b.Context()
	db, err := server.start(b).Database(ctx)
	must(b, err)
	b.Cleanup(func() {
		if err := db.Drop(context.Background()); err != nil {
			b.Error(err)
		}
	})
	pool, err := pgxpool.New(ctx, db.URL)
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
	_, s := open(b)
	for b.Loop() {
		_, err := s.Submit(b.Context(), store.Submission{Source: "a.mp4"})
		must(b, err)
	}
}

func BenchmarkSubmitAll(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) {
			_, s := open(b)
			subs := submissions(n)
			for b.Loop() {
				_, err := s.SubmitAll(b.Context(), subs)
				must(b, err)
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

// BenchmarkTurn is the dispatcher's round trip: so many completed stages are
// handed in, and the stages after them come back as claims.
func BenchmarkTurn(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("reports=%d", n), func(b *testing.B) {
			w := newWorker(b)
			for b.Loop() {
				if len(w.held) < n {
					b.StopTimer()
					w.claim(b)
					b.StartTimer()
				}
				w.turn(b, n)
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "reports/s")
		})
	}
}

// worker is who makes turns, with the claims it holds.
type worker struct {
	*store.Store
	id   store.ID
	held []engine.Claim
	free []int
}

// room is how many tasks are claimed at once, and how many slots are free.
const room = 1000

func newWorker(b *testing.B) *worker {
	b.Helper()
	_, s := open(b)
	id, err := engine.New(s.DB(), s.Graph()).RegisterWorker(b.Context(), store.Worker{Host: "bench", PID: os.Getpid(), Lease: store.DefaultLease})
	must(b, err)
	w := &worker{Store: s, id: id, free: make([]int, len(s.Graph().Stages()))}
	for i := range w.free {
		w.free[i] = 2 * room
	}
	return w
}

// claim submits tasks and claims their first stage.
func (w *worker) claim(b *testing.B) {
	b.Helper()
	_, err := w.SubmitAll(b.Context(), submissions(room))
	must(b, err)
	look := make([]bool, len(w.free))
	look[0] = true
	out, err := engine.New(w.DB(), w.Graph()).Exchange(b.Context(), w.in(nil, look))
	must(b, err)
	if len(out.Claims) != room {
		b.Fatalf("%d claims of %d tasks", len(out.Claims), room)
	}
	w.held = append(w.held, out.Claims...)
}

// turn hands in the n oldest claims as completed.
func (w *worker) turn(b *testing.B, n int) {
	reports := make([]engine.Report, n)
	for i, c := range w.held[:n] {
		reports[i] = engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Completed}
	}
	w.held = w.held[n:]
	out, err := engine.New(w.DB(), w.Graph()).Exchange(b.Context(), w.in(reports, make([]bool, len(w.free))))
	must(b, err)
	if len(out.Stale)+len(out.Locked) > 0 {
		b.Fatalf("%d reports were refused", len(out.Stale)+len(out.Locked))
	}
	w.held = append(w.held, out.Claims...)
}

func (w *worker) in(reports []engine.Report, look []bool) engine.ExchangeRequest {
	return engine.ExchangeRequest{Worker: w.id, Reports: reports, FreeSlots: w.free, ClaimFrom: look, PromoteDue: make([]bool, len(w.free))}
}

// BenchmarkNotify is the way of a notification: from before it is sent until the
// listener has the news.
func BenchmarkNotify(b *testing.B) {
	pool, s := open(b)
	channel := s.Graph().Channel("ingest")
	hears := make(chan struct{}, 1)
	listener := notify.New(pool, notify.Options{Channels: []string{channel}, OnChange: func(connected bool, err error) {
		if connected {
			hears <- struct{}{}
		}
	}})
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- listener.Run(ctx) }()
	<-hears
	<-listener.C() // what may have been missed before
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
