package remote_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
)

// queryCounter counts the queries and batches of a pool.
type queryCounter struct{ n atomic.Int64 }

func (c *queryCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}
func (*queryCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (c *queryCounter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.n.Add(1)
	return ctx
}
func (*queryCounter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*queryCounter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// rawConn is a worker that is only a connection, so that its own memory hardly counts.
type rawConn struct{ net.Conn }

func dialRaw(t testing.TB, c *coordinator) rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return rawConn{conn}
}

func (w rawConn) send(t testing.TB, path, body string) {
	t.Helper()
	_, err := fmt.Fprintf(w, "POST %s HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer key-1\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
	if err != nil {
		t.Fatal(err)
	}
}

func (w rawConn) receive(t testing.TB, v any) {
	t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(w), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(v); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("status %d, %v", response.StatusCode, err)
	}
}

func (w rawConn) register(t testing.TB) (id string) {
	t.Helper()
	w.send(t, "/register", fmt.Sprintf(`{"protocol":%d,"pipeline":"test","host":"raw"}`, remote.ProtocolVersion))
	var registered struct {
		Worker string `json:"worker_id"`
	}
	w.receive(t, &registered)
	return registered.Worker
}

func memory() uint64 {
	runtime.GC()
	runtime.GC() // finalizers of the first have run
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// countedWakes counts the rounds of Run.
type countedWakes struct {
	*notify.Listener
	rounds atomic.Int64
}

func (c *countedWakes) C() <-chan struct{} {
	c.rounds.Add(1)
	return c.Listener.C()
}

func TestCoordinator_SleepsWhileATaskIsDueForABusyWorkerOnly(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "work", Work: echo})
	g := s.pipeline.Graph()
	wakes := &countedWakes{Listener: notify.New(s.pool, notify.Options{Channels: []string{g.ControlChannel(), g.Channel("work")}})}
	s.coordinator = s.startCoordinator(func(o *remote.Options) { o.Wakes = wakes })
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { _ = wakes.Run(ctx) }) // until the end of the test
	busy, idle := s.registerWith("key-1", `"capabilities":{"labels":["gpu"]}`), s.registerWith("key-1", `"capabilities":{}`)
	s.submit("a source")
	s.claim("key-1", busy, "work")
	due := time.Now().Add(time.Second)
	if _, err := s.Submit(t.Context(), store.Submission{Source: "later", NotBefore: due}); err != nil {
		t.Fatal(err)
	}
	s.call("key-1", "/exchange", fmt.Sprintf(`{"worker_id":%q,"free_slots":{"work":1}}`, busy), &exchanged{})
	all.Go(func() {
		s.sendAs("key-1", http.MethodPost, "/exchange", fmt.Sprintf(`{"worker_id":%q,"free_slots":{"work":0},"wait_s":3}`, idle))
	})
	waittest.Equal(t, "the waiting workers", 1, s.Waiting)
	time.Sleep(time.Until(due)) // what is counted comes later
	before := wakes.rounds.Load()
	time.Sleep(time.Second)
	if rounds := wakes.rounds.Load() - before; rounds > 50 {
		t.Errorf("Run has made %d rounds in a second", rounds)
	}
}

func TestCoordinator_GrantsAWaitingRequestWhatAReportWithoutSlotsMakesReady(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo}, stages.Stage{Name: "second", Needs: []string{"first"}, Work: echo})
	worker := s.register("key-1")
	for range 100 {
		s.submit("a source")
		first := s.claim("key-1", worker, "first")
		answered := make(chan exchanged, 1)
		go func() {
			var out exchanged
			_, text := s.sendAs("key-1", http.MethodPost, "/exchange", fmt.Sprintf(
				`{"worker_id":%q,"held":[%q],"free_slots":{"second":1},"wait_s":20}`, worker, first.Token))
			_ = json.Unmarshal(text, &out) // without claims the test fails
			answered <- out
		}()
		waittest.Equal(t, "the waiting workers", 1, s.Waiting)
		began := time.Now()
		s.report("key-1", worker, first.Token, `"outcome":"completed","result":{}`)
		out := <-answered
		if took := time.Since(began); len(out.Claims) != 1 || took > time.Second {
			t.Fatalf("after %s there are %d claims", took, len(out.Claims))
		}
		s.report("key-1", worker, out.Claims[0].Token, `"outcome":"completed","result":{}`)
	}
}

func TestCoordinator_WaitingWorkersCostLittleMemoryAndNoQueriesOfTheirOwn(t *testing.T) {
	workers := 1000
	if testing.Short() {
		workers = 100
	}
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	counter := &queryCounter{}
	config := s.pool.Config()
	config.ConnConfig.Tracer = counter
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c := s.startCoordinator(func(o *remote.Options) { o.Pool = pool })
	t.Cleanup(c.stop)
	before := memory()
	all := make([]rawConn, workers)
	ids := make([]string, workers)
	for i := range all {
		all[i] = dialRaw(t, c)
		ids[i] = all[i].register(t)
	}
	wait := func(sequence, seconds int) {
		for i, w := range all {
			if sequence > 1 {
				w.receive(t, &struct{}{}) // the end of the request before
			}
			w.send(t, "/exchange", fmt.Sprintf(`{"worker_id":%q,"sequence":%d,"held":[],"free_slots":{"first":1},"wait_s":%d}`,
				ids[i], sequence, seconds))
		}
		waittest.Equal(t, "the waiting workers", workers, func() int { return c.Waiting() })
	}
	wait(1, 7) // the longest interval between two renewals is 6 s
	// Both ends of the connections count.
	each := (int64(memory()) - int64(before)) / int64(workers)
	t.Logf("%d bytes for each of %d waiting workers", each, workers)
	if each > 60<<10 {
		t.Errorf("a waiting worker takes %d bytes", each)
	}
	queries, began := counter.n.Load(), time.Now()
	wait(2, 30)
	n, waited := counter.n.Load()-queries, time.Since(began)
	// All are renewed at once, on a busy machine every 2 s.
	if n < 1 || n > 20 {
		t.Errorf("%d workers that waited %s, and once more, cost %d queries", workers, waited, n)
	}
	for range 3 {
		task := s.submit("a source")
		waittest.Equal(t, "the status", store.StatusInProgress, func() store.Status { return s.status(task, "first") })
	}
	waittest.Equal(t, "the waiting workers", workers-3, func() int { return c.Waiting() })
}
