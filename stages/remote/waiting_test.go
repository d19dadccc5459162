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
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/waittest"
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
	for i, w := range all {
		w.send(t, "/exchange", fmt.Sprintf(`{"worker_id":%q,"sequence":1,"held":[],"free_slots":{"first":1},"wait_s":30}`, ids[i]))
	}
	waittest.Equal(t, "the waiting workers", workers, func() int { return c.Waiting() })
	// Both ends of the connections count.
	each := (int64(memory()) - int64(before)) / int64(workers)
	t.Logf("%d bytes for each of %d waiting workers", each, workers)
	if each > 60<<10 {
		t.Errorf("a waiting worker takes %d bytes", each)
	}
	queries := counter.n.Load()
	time.Sleep(7 * time.Second) // the longest interval between two renewals is 6 s
	n := counter.n.Load() - queries
	t.Logf("%d queries in 7 s", n)
	if n < 1 || n > 3 {
		t.Errorf("%d workers that waited 7 s cost %d queries", workers, n)
	}
	for range 3 {
		task := s.submit("a source")
		waittest.Equal(t, "the status", store.StatusInProgress, func() store.Status { return s.status(task, "first") })
	}
	waittest.Equal(t, "the waiting workers", workers-3, func() int { return c.Waiting() })
}
