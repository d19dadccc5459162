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
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/store"
)

const database = "cuelight"

// rig has everything that is measured, and what measures it.
type rig struct {
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

// run measures. An error means that it could not, which shows nothing.
func run(ctx context.Context, o options, out io.Writer) (sum summary, err error) {
	r := &rig{Log: progresslog.New(out), options: o}
	defer func() { err = errors.Join(err, r.close()) }()
	if err := r.build(ctx); err != nil {
		return sum, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	r.startWorkload(ctx, g)
	var phases []phase
	g.Go(func() (err error) {
		defer stop()
		phases, err = r.runPhases(ctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return sum, err
	}
	sum = summarise(phases)
	sum.MissedWakes, sum.DaemonErrors = r.waits.missedWakes, r.daemon.errors()
	r.Printf("%s", sum.table())
	for _, text := range append(sum.FirstErrors, sum.DaemonErrors...) {
		r.Logf("%s", text)
	}
	return sum, nil
}

// build starts the server, the daemon and the process of the clients.
func (r *rig) build(ctx context.Context) (err error) {
	// The account of the database server must be able to enter the directory.
	if r.dir, err = os.MkdirTemp("", "cuelight-load-"); err != nil {
		return err
	}
	if err := os.Chmod(r.dir, 0o755); err != nil {
		return err
	}
	if r.server, err = postgres.StartEphemeral(ctx, postgres.EphemeralOptions{Durable: true}); err != nil {
		return err
	}
	if err := r.server.CreateDatabase(ctx, database); err != nil {
		return err
	}
	if r.pool, err = pgxpool.New(ctx, r.server.URL(database)); err != nil {
		return err
	}
	for _, st := range []*store.Store{r.videoStore(), r.otherStore()} {
		if _, err := st.Migrate(ctx); err != nil {
			return err
		}
	}
	const postmasterSQL = `select split_part(pg_read_file('postmaster.pid'), e'\n', 1)::int`
	if err := r.pool.QueryRow(ctx, postmasterSQL).Scan(&r.postmaster); err != nil {
		return err
	}
	nice := strconv.Itoa(r.options.nice)
	r.daemon, err = startDaemon(ctx, r.options.program, r.dir, r.server.URL(database), "--nice", nice)
	if err != nil {
		return err
	}
	r.waits = &waitMeter{pool: r.pool}
	r.clients, err = startClientProcess(clientOptions{
		Address: r.daemon.address, Secret: r.daemon.secret,
		Streams: r.options.streams, Pages: r.options.pages, Rate: r.options.rate,
	})
	return err
}

func (r *rig) videoStore() *store.Store { return store.New(r.pool, store.Video()) }
func (r *rig) otherStore() *store.Store { return store.New(r.pool, otherPipeline().Graph()) }

func (r *rig) close() error {
	var err error
	if r.clients != nil {
		err = r.clients.close()
	}
	if r.daemon != nil {
		err = errors.Join(err, r.daemon.close())
	}
	if r.pool != nil {
		r.pool.Close()
	}
	if r.server != nil {
		err = errors.Join(err, r.server.Close())
	}
	return errors.Join(err, os.RemoveAll(r.dir))
}

// runPhases measures alternately without clients and with them.
func (r *rig) runPhases(ctx context.Context) ([]phase, error) {
	if err := r.waitForWork(ctx); err != nil {
		return nil, err
	}
	var all []phase
	for i := range 2 * r.options.pairs {
		withClients := i%2 == 1
		if withClients {
			if err := r.clients.connect(ctx); err != nil {
				return nil, err
			}
		}
		if err := ctxsleep.For(ctx, r.options.settle); err != nil {
			return nil, err
		}
		p, err := r.measure(ctx, withClients, i/2 == r.options.pairs/2)
		if err == nil && withClients {
			err = r.disconnectClients(ctx, &p)
		}
		if err != nil {
			return nil, err
		}
		r.Logf("%s", p)
		all = append(all, p)
	}
	return all, nil
}

// waitForWork waits until the daemon works on a video, or with -idle until it has rejected a task.
func (r *rig) waitForWork(ctx context.Context) error {
	status := store.StatusInProgress
	if r.options.idle {
		status = store.StatusDead
	}
	for {
		tasks, err := r.videoStore().List(ctx, store.ListQuery{Filter: store.Filter{Status: status, Limit: 1}})
		if err != nil || len(tasks) > 0 {
			return err
		}
		if err := ctxsleep.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// disconnectClients compares what the streams received with the events in the database.
func (r *rig) disconnectClients(ctx context.Context, p *phase) error {
	var last int64
	if err := r.pool.QueryRow(ctx, "select max(id) from events").Scan(&last); err != nil {
		return err
	}
	received, err := r.clients.disconnect(ctx, last)
	if err != nil {
		return err
	}
	p.observation = *received
	var ids []int64
	const idsSQL = "select coalesce(array_agg(id order by id), '{}') from events"
	if err := r.pool.QueryRow(ctx, idsSQL).Scan(&ids); err != nil {
		return err
	}
	p.mismatches = compareStreams(ids, received.Streams)
	return nil
}

// saveProfiles writes the daemon's profiles in one phase of each kind, if the options ask for them.
func (r *rig) saveProfiles(ctx context.Context, withClients, withProfiles bool) error {
	if r.options.profiles == "" || !withProfiles {
		return nil
	}
	name := map[bool]string{true: "with", false: "without"}[withClients]
	if err := os.MkdirAll(filepath.Clean(r.options.profiles), 0o755); err != nil {
		return err
	}
	if err := r.daemon.saveProfiles(ctx, r.options.profiles, name, r.options.phase); err != nil {
		return fmt.Errorf("profile the daemon: %w", err)
	}
	return nil
}
