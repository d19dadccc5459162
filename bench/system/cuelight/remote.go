package cuelight

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
)

// remoteWorkers are one Runner without the database, and its coordinator.
type remoteWorkers struct {
	*workers
	client *remote.Client
	url    string
}

const remoteKey = "bench"

// startRemote returns when the Runner is registered and its request waits at the coordinator.
func startRemote(ctx context.Context, url string, o system.Options) (_ system.Workers, err error) {
	r := &remoteWorkers{}
	if r.workers, err = startWorkers(ctx, url, o, r.run); err != nil {
		return nil, err
	}
	waits := r.client.Wakes().(interface{ Connected() bool })
	for !waits.Connected() {
		if err := ctxsleep.For(ctx, time.Millisecond); err != nil {
			return nil, errors.Join(err, r.Stop(context.WithoutCancel(ctx)))
		}
	}
	return r, nil
}

// run runs the coordinator, its server and the Runner. The Runner ends first.
func (r *remoteWorkers) run(ctx context.Context, w *workers, p *stages.Pipeline) (err error) {
	listener := notify.New(w.pool, notify.Options{Channels: p.Channels(), OnChange: w.onListenerChange})
	coordinator := remote.NewCoordinator(remote.Options{
		Pool: w.pool, Pipeline: p, Wakes: listener, OnError: w.errs.Add,
		Authenticate: func(*http.Request) (string, error) { return remoteKey, nil },
	})
	serveCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	server := httptest.NewServer(coordinator)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer stop()
	defer server.Close()
	serving.Go(func() { w.errs.Add(coordinator.Run(serveCtx)) })
	serving.Go(func() {
		if err := listener.Run(serveCtx); serveCtx.Err() == nil {
			w.errs.Add(err)
		}
	})
	r.url = server.URL
	transport := remote.NewTransport()
	defer transport.CloseIdleConnections()
	r.client, err = remote.NewClient(remote.ClientOptions{
		URL: r.url, Key: remoteKey, Graph: p.Graph(), HTTP: &http.Client{Transport: transport},
	})
	if err != nil {
		return err
	}
	return stages.Runner{
		Pipeline: p, Backend: r.client.Backend(), Wakes: r.client.Wakes(), Observe: w.onEvent,
	}.Run(ctx)
}

// roundTrips has a connection of its own.
var roundTrips = &http.Client{Transport: remote.NewTransport()}

// RoundTrip sends a request that needs no database and returns how long its answer took.
func (r *remoteWorkers) RoundTrip(ctx context.Context) (time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/pipeline", nil)
	if err != nil {
		return 0, err
	}
	sent := time.Now()
	response, err := roundTrips.Do(request)
	if err != nil {
		return 0, err
	}
	took := time.Since(sent)
	if response.StatusCode != http.StatusOK {
		err = fmt.Errorf("a request to the coordinator was answered with %s", response.Status)
	}
	return took, errors.Join(err, response.Body.Close())
}
