package remote_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
)

// A pipeline whose work another process does, without the database. Here both are one program.
func Example() {
	pool, drop := pgtest.Example(pgtest.Schema{})
	defer drop()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// Both programs have the same stages. This one has the database and does no work.
	listed := stages.Stage{Name: "greet", Slots: -1, Work: func(context.Context, *stages.Job) (any, error) {
		return nil, errors.New("this process does no work")
	}}
	pipeline, err := stages.New("greetings", listed)
	if err != nil {
		log.Fatal(err)
	}
	tasks := store.New(pool, pipeline.Graph())
	if _, err := tasks.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	coordinator := remote.NewCoordinator(remote.Options{Pool: pool, Pipeline: pipeline, Authenticate: func(r *http.Request) (string, error) {
		if r.Header.Get("Authorization") != "Bearer a long secret" {
			return "", errors.New("the key is not valid")
		}
		return "the worker of the example", nil
	}})
	mux := http.NewServeMux()
	mux.Handle("/worker/", http.StripPrefix("/worker", coordinator))
	server := httptest.NewServer(mux)
	defer server.Close()

	var running sync.WaitGroup
	running.Go(func() { _ = coordinator.Run(ctx) })
	// A Runner with the database expires lost workers.
	running.Go(func() { _ = stages.Runner{Pool: pool, Pipeline: pipeline}.Run(ctx) })

	if _, err := tasks.Submit(ctx, store.Submission{Source: "world"}); err != nil {
		log.Fatal(err)
	}

	// The other program works.
	worked, err := stages.New("greetings", stages.Stage{Name: "greet", Work: func(_ context.Context, job *stages.Job) (any, error) {
		fmt.Println("hello,", job.Source)
		stop() // this program ends after one task; a real one runs until it gets a signal
		return nil, nil
	}})
	if err != nil {
		log.Fatal(err)
	}
	transport := remote.NewTransport()
	defer transport.CloseIdleConnections()
	client, err := remote.NewClient(remote.ClientOptions{
		URL: server.URL + "/worker", Key: "a long secret", Graph: worked.Graph(), HTTP: &http.Client{Transport: transport},
	})
	if err != nil {
		log.Fatal(err)
	}
	running.Go(func() {
		_ = stages.Runner{Pipeline: worked, Backend: client.Backend(), Wakes: client.Wakes()}.Run(ctx)
	})
	running.Wait()
	// Output: hello, world
}
