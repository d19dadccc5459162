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

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// WaitingWorkers measures a daemon while so many remote workers wait at it and nothing happens:
// "waiting_workers", with the figures of IdleDaemon. The workers speak the protocol of docs/workers.md
// from this process: each keeps one request open. The first requests of all end at different
// times, so that in every second some are answered and sent again.
func WaitingWorkers(workers int, during time.Duration) Scenario {
	const longestWait, settleTime = 30 * time.Second, 2 * time.Second
	names := []string{"waiting_workers", remoteName}
	return Scenario{Names: names, Settings: logAll, Measure: func(ctx context.Context, t *Trial) error {
		return t.withDaemon(ctx, true, func(d *daemon) error {
			client, err := newWaitingClient(ctx, t.URL, d.address)
			if err != nil {
				return err
			}
			defer client.http.CloseIdleConnections()
			alone, err := proofkit.UsageOf(d.PID())
			if err != nil {
				return err
			}
			ids, err := client.registerAll(ctx, workers)
			if err != nil {
				return err
			}
			waiting, stop := context.WithCancel(ctx)
			all, waiting := errgroup.WithContext(waiting)
			for i, id := range ids {
				all.Go(func() error {
					return client.wait(waiting, id, longestWait*time.Duration(i+1)/time.Duration(workers), longestWait)
				})
			}
			prefix := fmt.Sprintf("workers=%d,", workers)
			var peak int64
			if err = ctxsleep.For(waiting, settleTime); err == nil { // the daemon handles the requests that it has received
				peak, err = t.recordUsage(waiting, d, during, "waiting_workers", prefix)
			}
			stop()
			if err = errors.Join(all.Wait(), err); err != nil {
				return err
			}
			t.RecordValue("waiting_workers", prefix+"added memory", "MiB", float64(peak-alone.Peak)/(1<<20))
			return nil
		})
	}}
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
	err = system.WithConn(ctx, databaseURL, func(conn *pgx.Conn) (err error) {
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

// wait keeps a request of a worker open until ctx is done. The first one takes another time than the others.
func (c *waitingClient) wait(ctx context.Context, worker string, first, longest time.Duration) error {
	in := map[string]any{"worker_id": worker, "free_slots": map[string]int{"transcode": 1, "metadata": 1}}
	for wait := first; ctx.Err() == nil; wait = longest {
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
