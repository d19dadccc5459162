package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// WaitingWorkers measures a daemon while so many remote workers wait at it and nothing happens:
// "waiting_workers", with the figures of IdleDaemon. The workers speak the protocol of docs/workers.md
// from this process: each keeps one request open. The first requests of all end at different
// times, so that in every second some are answered and sent again.
func WaitingWorkers(workers int, during time.Duration) Scenario {
	s := waitingWorkers{workers, during}
	return Scenario{
		Names: []string{"waiting_workers", remoteName}, Settings: []string{"log_statement=all"}, Measure: s.measure,
	}
}

type waitingWorkers struct {
	workers int
	during  time.Duration
}

// longestWait is that of a waiting request.
const longestWait = 30 * time.Second

func (s waitingWorkers) measure(ctx context.Context, t *Trial) (err error) {
	daemon, err := startDaemon(ctx, t, "--listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer daemon.end(ctx, &err)
	client, err := newWaitingClient(ctx, t.URL, daemon.address)
	if err != nil {
		return err
	}
	defer client.http.CloseIdleConnections()
	alone, err := takeDaemonSample(t.Server, daemon.PID())
	if err != nil {
		return err
	}
	ids, err := client.registerAll(ctx, s.workers)
	if err != nil {
		return err
	}
	waiting, stop := context.WithCancel(ctx)
	all, waiting := errgroup.WithContext(waiting)
	for i, id := range ids {
		all.Go(func() error { return client.wait(waiting, id, longestWait*time.Duration(i+1)/time.Duration(len(ids))) })
	}
	usage, err := s.measureWhileWaiting(waiting, t, daemon)
	stop()
	if err = errors.Join(all.Wait(), err); err != nil {
		return err
	}
	usage.record(t, "waiting_workers", fmt.Sprintf("workers=%d,", s.workers))
	t.Record("waiting_workers", fmt.Sprintf("workers=%d,added memory", s.workers), "MiB",
		result.FromValue(float64(usage.memory-alone.Peak)/(1<<20)))
	t.Note("waiting_workers", "cuelight serve --listen on an empty database, for %v while all workers wait for %v each",
		s.during, longestWait)
	return nil
}

// settleTime lets the daemon handle the requests that it has received.
const settleTime = 2 * time.Second

func (s waitingWorkers) measureWhileWaiting(ctx context.Context, t *Trial, d *benchDaemon) (u daemonUsage, err error) {
	if err := ctxsleep.For(ctx, settleTime); err != nil {
		return u, err
	}
	return measureUsage(ctx, t, d, s.during)
}

// waitingClient sends the requests of all workers, with one key.
type waitingClient struct {
	http *http.Client
	url  string
	key  string
}

func newWaitingClient(ctx context.Context, databaseURL, address string) (c *waitingClient, err error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 1<<16
	c = &waitingClient{&http.Client{Transport: transport}, strings.TrimSuffix(address, "/") + "/api/v1/worker", ""}
	err = harness.WithConn(ctx, databaseURL, func(conn *pgx.Conn) (err error) {
		_, c.key, err = access.NewKeyStore(conn).CreateKey(ctx, "bench", access.Work.String())
		return err
	})
	return c, err
}

// registerAll registers workers, some at a time, and returns their ids.
func (c *waitingClient) registerAll(ctx context.Context, n int) ([]string, error) {
	const atOnce = 8
	ids := make([]string, n)
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i := range ids {
		all.Go(func() error {
			var out struct {
				ID string `json:"worker_id"`
			}
			in := map[string]any{"protocol": 1, "pipeline": "video", "host": fmt.Sprintf("bench-%d", i)}
			err := c.call(ctx, "/register", in, &out)
			ids[i] = out.ID
			return err
		})
	}
	return ids, all.Wait()
}

// wait keeps a request of a worker open until ctx is done. The first one takes the given time.
func (c *waitingClient) wait(ctx context.Context, worker string, first time.Duration) error {
	in := map[string]any{"worker_id": worker, "free_slots": map[string]int{"transcode": 1, "metadata": 1}}
	for wait := first; ctx.Err() == nil; wait = longestWait {
		var out struct{ Claims []json.RawMessage }
		in["wait_s"] = wait.Seconds()
		err := c.call(ctx, "/exchange", in, &out)
		switch {
		case ctx.Err() != nil:
			return nil // the measurement has ended
		case err != nil:
			return err
		case len(out.Claims) > 0:
			return errors.New("a worker received a claim, but there are no tasks")
		}
	}
	return nil
}

// call sends a request with a JSON body and decodes the answer.
func (c *waitingClient) call(ctx context.Context, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s was answered with %s: %s", path, response.Status, text)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}
