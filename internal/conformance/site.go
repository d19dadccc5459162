package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// The worker's key, and the principal that it stands for.
const (
	key       = "cue_conformance"
	principal = "key conformance"
)

// site is a coordinator with its database, at a loopback address that stays the same.
type site struct {
	database *postgres.Ephemeral
	pool     *pgxpool.Pool
	store    *store.Store
	engine   *engine.Engine
	front    *front
	files    *files
	address  string // host and port
	server   *http.Server
	stop     func() // ends the coordinator and the sweeps

	running, serving sync.WaitGroup
}

// pipeline returns the pipeline of the checks. An expired attempt is repeated at once. This process
// leaves the stage to others.
func pipeline() (*stages.Pipeline, error) {
	return stages.New("conformance", stages.Stage{
		Name: "work", Slots: -1, MaxAttempts: 5, Backoff: stages.Backoff{Base: 100 * time.Millisecond, Max: 100 * time.Millisecond},
		Work: func(context.Context, *stages.Job) (any, error) { return nil, errors.New("this process does not work") },
	})
}

// startSite starts a coordinator. Call close at the end, also after an error.
func startSite(ctx context.Context) (s *site, err error) {
	s = &site{front: &front{}, files: &files{outputs: make(map[store.ID][]byte)}, stop: func() {}}
	p, err := pipeline()
	if err != nil {
		return s, err
	}
	if s.database, err = postgres.StartEphemeral(ctx, postgres.EphemeralOptions{}); err != nil {
		return s, err
	}
	if s.pool, err = pgxpool.New(ctx, s.database.URL("postgres")); err != nil {
		return s, err
	}
	s.store, s.engine = store.New(s.pool, p.Graph()), engine.New(s.pool, p.Graph())
	if _, err := s.store.Migrate(ctx); err != nil {
		return s, err
	}
	coordinator := remote.NewCoordinator(remote.Options{
		Pool: s.pool, Pipeline: p, Authenticate: s.authenticate, Files: s.files,
	})
	s.front.next = coordinator
	run, cancel := context.WithCancel(ctx)
	s.running.Go(func() { _ = coordinator.Run(run) }) // returns nil
	// A coordinator does not expire the claims of lost workers; a worker with the database does.
	sweeper := stages.Runner{Pool: s.pool, Pipeline: p, SweepInterval: time.Second}
	s.running.Go(func() { _ = sweeper.Run(run) }) // without it a check fails
	s.stop = func() { cancel(); s.running.Wait() }
	return s, s.listen(ctx)
}

func (s *site) authenticate(r *http.Request) (string, error) {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case !ok || given != key:
		return "", errors.New("the key is not that of $CUELIGHT_KEY")
	case s.front.isRevoked():
		return "", errors.New("the key is revoked")
	}
	return principal, nil
}

// listen serves at the address; the first call chooses it.
func (s *site) listen(ctx context.Context) error {
	address := s.address
	if address == "" {
		address = "127.0.0.1:0"
	}
	var l net.Listener
	var err error
	for range 50 { // a connection of another program may have taken the port
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err == nil || s.address == "" {
			break
		}
		if err := ctxsleep.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	s.address = l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle(apiPath+"/", s.front)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	s.server = server
	s.serving.Go(func() { _ = server.Serve(l) }) // until disconnect
	return nil
}

// disconnect closes the address and all connections.
func (s *site) disconnect() {
	if s.server != nil {
		_ = s.server.Close() // of what the worker keeps open
	}
	s.serving.Wait()
}

func (s *site) close() error {
	s.stop()
	s.disconnect()
	if s.pool != nil {
		s.pool.Close()
	}
	if s.database != nil {
		return s.database.Close()
	}
	return nil
}

// submit submits a task.
func (s *site) submit(ctx context.Context, p params) (store.ID, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return store.ID{}, err
	}
	receipt, err := s.store.Submit(ctx, store.Submission{Source: "conformance", Params: text})
	return receipt.ID, err
}

// liveWorker returns the remote worker that registered last and is neither stopped nor lost; zero
// for none.
func (s *site) liveWorker(ctx context.Context) (newest store.Worker, err error) {
	all, err := s.store.Workers(ctx, false)
	for _, w := range all {
		if w.Principal == principal && w.ID.String() > newest.ID.String() {
			newest = w
		}
	}
	return newest, err
}

// clear cancels all open tasks, and expires the workers of processes that have ended.
func (s *site) clear(ctx context.Context, open []store.ID, isRunning bool) error {
	for _, task := range open {
		t, err := s.store.Get(ctx, task)
		if err == nil && !t.IsFinished(s.store.Graph()) {
			err = s.store.Cancel(ctx, task)
		}
		if err != nil {
			return fmt.Errorf("cancel task: %w", err)
		}
	}
	all, err := s.store.Workers(ctx, false)
	if err != nil || isRunning {
		return err
	}
	var ids []store.ID
	for _, w := range all {
		if w.Principal == principal {
			ids = append(ids, w.ID)
		}
	}
	_, err = s.engine.ExpireWorkers(ctx, ids)
	return err
}
