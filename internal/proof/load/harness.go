package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/store"
)

const database = "cuelight"

// harness has everything that is measured, and everything that measures it.
type harness struct {
	*progresslog.Log
	options    options
	dir        string
	server     *postgres.Ephemeral
	postmaster int // the server's first process
	pool       *pgxpool.Pool
	daemon     *daemon
	clients    *clientProcess
	waits      *waitMeter
}

// run measures. An error means that the run did not finish; it says nothing about Cuelight.
func run(ctx context.Context, o options, out io.Writer) (sum summary, err error) {
	h := &harness{Log: progresslog.New(out), options: o}
	defer func() { err = errors.Join(err, h.close()) }()
	if err := h.build(ctx); err != nil {
		return sum, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	h.startWorkload(ctx, g)
	var phases []phase
	g.Go(func() (err error) {
		defer stop()
		phases, err = h.runPhases(ctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return sum, err
	}
	sum = summarize(phases)
	sum.MissedWakes, sum.DaemonErrors = h.waits.missedWakes, h.daemon.errors()
	h.Printf("%s", sum.table())
	for _, text := range append(sum.FirstErrors, sum.DaemonErrors...) {
		h.Logf("%s", text)
	}
	return sum, nil
}

// build starts the server, the daemon and the process of the clients.
func (h *harness) build(ctx context.Context) (err error) {
	// The account of the database server must be able to enter the directory.
	if h.dir, err = os.MkdirTemp("", "cuelight-load-"); err != nil {
		return err
	}
	if err := os.Chmod(h.dir, 0o755); err != nil {
		return err
	}
	if h.server, err = postgres.StartEphemeral(ctx, postgres.EphemeralOptions{Durable: true}); err != nil {
		return err
	}
	if err := h.server.CreateDatabase(ctx, database); err != nil {
		return err
	}
	if h.pool, err = pgxpool.New(ctx, h.server.URL(database)); err != nil {
		return err
	}
	for _, st := range []*store.Store{h.videoStore(), h.otherStore()} {
		if _, err := st.Migrate(ctx); err != nil {
			return err
		}
	}
	if err := operators.Migrate(ctx, h.pool); err != nil {
		return err
	}
	const postmasterSQL = `select split_part(pg_read_file('postmaster.pid'), e'\n', 1)::int`
	if err := h.pool.QueryRow(ctx, postmasterSQL).Scan(&h.postmaster); err != nil {
		return err
	}
	nice := strconv.Itoa(h.options.nice)
	h.daemon, err = startDaemon(ctx, h.options.program, h.dir, h.server.URL(database), "--nice", nice)
	if err != nil {
		return err
	}
	h.waits = &waitMeter{pool: h.pool}
	h.clients, err = startClientProcess(clientOptions{
		Address: h.daemon.address, Secret: h.daemon.secret,
		Streams: h.options.streams, Pages: h.options.pages, Rate: h.options.rate,
	})
	return err
}

func (h *harness) videoStore() *store.Store { return store.New(h.pool, store.Video()) }
func (h *harness) otherStore() *store.Store { return store.New(h.pool, otherPipeline().Graph()) }

func (h *harness) close() error {
	var err error
	if h.clients != nil {
		err = h.clients.close()
	}
	if h.daemon != nil {
		err = errors.Join(err, h.daemon.close())
	}
	if h.pool != nil {
		h.pool.Close()
	}
	if h.server != nil {
		err = errors.Join(err, h.server.Close())
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}

// runPhases measures alternately without clients and with them.
func (h *harness) runPhases(ctx context.Context) ([]phase, error) {
	if err := h.waitForWork(ctx); err != nil {
		return nil, err
	}
	var all []phase
	for i := range 2 * h.options.pairs {
		withClients := i%2 == 1
		if withClients {
			if err := h.clients.connect(ctx); err != nil {
				return nil, err
			}
		}
		if err := ctxsleep.For(ctx, h.options.warmup); err != nil {
			return nil, err
		}
		p, err := h.measure(ctx, withClients, i/2 == h.options.pairs/2)
		if err == nil && withClients {
			err = h.disconnectClients(ctx, &p)
		}
		if err != nil {
			return nil, err
		}
		h.Logf("%s", p)
		all = append(all, p)
	}
	return all, nil
}

// waitForWork waits until the daemon works on a video, or with -idle until it has rejected a task.
func (h *harness) waitForWork(ctx context.Context) error {
	status := store.StatusInProgress
	if h.options.idle {
		status = store.StatusDead
	}
	for {
		tasks, err := h.videoStore().List(ctx, store.ListQuery{Filter: store.Filter{Status: status, Limit: 1}})
		if err != nil || len(tasks) > 0 {
			return err
		}
		if err := ctxsleep.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// disconnectClients compares what the streams received with the events in the database.
func (h *harness) disconnectClients(ctx context.Context, p *phase) error {
	var last int64
	if err := h.pool.QueryRow(ctx, "select max(id) from events").Scan(&last); err != nil {
		return err
	}
	received, err := h.clients.disconnect(ctx, last)
	if err != nil {
		return err
	}
	p.observation = *received
	var ids []int64
	const idsSQL = "select coalesce(array_agg(id order by id), '{}') from events"
	if err := h.pool.QueryRow(ctx, idsSQL).Scan(&ids); err != nil {
		return err
	}
	p.mismatches = compareStreams(ids, received.Streams)
	return nil
}

// saveProfiles writes the daemon's profiles in one phase of each kind, if the options ask for them.
func (h *harness) saveProfiles(ctx context.Context, withClients, withProfiles bool) error {
	if h.options.profiles == "" || !withProfiles {
		return nil
	}
	name := map[bool]string{true: "with", false: "without"}[withClients]
	if err := os.MkdirAll(filepath.Clean(h.options.profiles), 0o755); err != nil {
		return err
	}
	if err := h.daemon.saveProfiles(ctx, h.options.profiles, name, h.options.phase); err != nil {
		return fmt.Errorf("profile the daemon: %w", err)
	}
	return nil
}
