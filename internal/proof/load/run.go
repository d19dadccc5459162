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

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/store"
)

// plan is what is to be measured. Everything but nice, idle and profiles must be set.
type plan struct {
	program        string
	pairs          int
	phase, settle  time.Duration
	streams, pages int
	rate           int
	own, other     int
	nice           int
	idle           bool
	factor         float64
	profiles       string
}

const database = "cuelight"

// stand is what is measured, and what with.
type stand struct {
	*progresslog.Log
	plan   plan
	dir    string
	server *pgserver.Server
	pool   *pgxpool.Pool
	daemon *daemon
	crowd  *crowdProcess
	probe  *probe
	// postmaster is the server's first process.
	postmaster int
}

// run carries out the plan. An error means that it could not be, and so shows
// nothing.
func run(ctx context.Context, p plan, out io.Writer) (sum summary, err error) {
	s := &stand{Log: progresslog.New(out), plan: p}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.set(ctx); err != nil {
		return sum, err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	g, working := errgroup.WithContext(working)
	s.work(working, g)
	var phases []phase
	g.Go(func() error {
		defer stop()
		var err error
		phases, err = s.phases(working)
		return err
	})
	if err := g.Wait(); err != nil {
		return sum, err
	}
	sum = summarise(phases)
	sum.Missed, sum.Logged = s.probe.missed, s.daemon.logged()
	s.Printf("%s", sum.table())
	for _, what := range append(sum.Faults, sum.Logged...) {
		s.Logf("%s", what)
	}
	return sum, nil
}

// set puts everything in its place.
func (s *stand) set(ctx context.Context) (err error) {
	// A short path, which others may enter: a database's user may be another.
	if s.dir, err = os.MkdirTemp("", "cuelight-load-"); err != nil {
		return err
	}
	if err := os.Chmod(s.dir, 0o755); err != nil {
		return err
	}
	if s.server, err = pgserver.Start(ctx, pgserver.Options{Durable: true}); err != nil {
		return err
	}
	if err := s.server.CreateDatabase(ctx, database); err != nil {
		return err
	}
	if s.pool, err = pgxpool.New(ctx, s.server.URL(database)); err != nil {
		return err
	}
	for _, st := range []*store.Store{s.videos(), s.others()} {
		if _, err := st.Migrate(ctx); err != nil {
			return err
		}
	}
	if s.postmaster, err = s.findPostmaster(ctx); err != nil {
		return err
	}
	if s.daemon, err = serve(ctx, s.plan.program, s.dir, s.server.URL(database), "--nice", strconv.Itoa(s.plan.nice)); err != nil {
		return err
	}
	s.probe = &probe{pool: s.pool}
	s.crowd, err = newCrowdProcess(order{
		Address: s.daemon.address, Secret: s.daemon.secret, Streams: s.plan.streams, Pages: s.plan.pages, Rate: s.plan.rate,
	})
	return err
}

func (s *stand) videos() *store.Store { return store.New(s.pool, store.Video()) }
func (s *stand) others() *store.Store { return store.New(s.pool, pipeline(doNothing).Graph()) }

// findPostmaster finds the parent of all sessions.
func (s *stand) findPostmaster(ctx context.Context) (int, error) {
	var session int
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	if err := conn.QueryRow(ctx, "select pg_backend_pid()").Scan(&session); err != nil {
		return 0, err
	}
	return parent(session)
}

func (s *stand) close() error {
	var err error
	if s.crowd != nil {
		err = s.crowd.close()
	}
	if s.daemon != nil {
		err = errors.Join(err, s.daemon.close())
	}
	if s.pool != nil {
		s.pool.Close()
	}
	if s.server != nil {
		err = errors.Join(err, s.server.Close())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// work has both pipelines be at work until ctx is done.
func (s *stand) work(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error { return s.probe.run(ctx) })
	g.Go(func() error { return submit(ctx, s.others(), s.plan.other, "nothing-") })
	g.Go(func() error { return submit(ctx, s.videos(), s.plan.own, s.dir+noSuchFile) })
	if !s.plan.idle {
		g.Go(func() error {
			file, err := clip(ctx, s.dir)
			if err != nil {
				return err
			}
			return feed(ctx, s.videos(), file)
		})
	}
}

// phases measures by turns without and with the crowd.
func (s *stand) phases(ctx context.Context) ([]phase, error) {
	if err := s.begun(ctx); err != nil {
		return nil, err
	}
	var all []phase
	for i := range 2 * s.plan.pairs {
		crowd := i%2 == 1
		if crowd {
			if err := s.crowd.come(ctx); err != nil {
				return nil, err
			}
		}
		if err := pause(ctx, s.plan.settle); err != nil {
			return nil, err
		}
		p, err := s.measure(ctx, crowd, i/2 == s.plan.pairs/2)
		if err == nil && crowd {
			err = s.leave(ctx, &p)
		}
		if err != nil {
			return nil, err
		}
		s.Logf("%s", p)
		all = append(all, p)
	}
	return all, nil
}

// begun waits until a video is being transcoded.
func (s *stand) begun(ctx context.Context) error {
	status := store.StatusInProgress
	if s.plan.idle {
		status = store.StatusDead
	}
	for {
		tasks, err := s.videos().List(ctx, store.Filter{Status: status, Limit: 1})
		if err != nil || len(tasks) > 0 {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// leave has the crowd go, and holds what it was told against the database.
func (s *stand) leave(ctx context.Context, p *phase) error {
	var last int64
	if err := s.pool.QueryRow(ctx, "select max(id) from events").Scan(&last); err != nil {
		return err
	}
	seen, err := s.crowd.leave(ctx, last)
	if err != nil {
		return err
	}
	p.seen = *seen
	truth, err := s.events(ctx)
	if err != nil {
		return err
	}
	p.wrong = compare(truth, seen.Streams)
	return nil
}

// events are the ids of all events.
func (s *stand) events(ctx context.Context) ([]int64, error) {
	var ids []int64
	err := s.pool.QueryRow(ctx, "select coalesce(array_agg(id order by id), '{}') from events").Scan(&ids)
	return ids, err
}

// keepProfiles writes the daemon's profiles, if that is wanted.
func (s *stand) keepProfiles(ctx context.Context, name string) error {
	if s.plan.profiles == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Clean(s.plan.profiles), 0o755); err != nil {
		return err
	}
	if err := s.daemon.keepProfiles(ctx, s.plan.profiles, name, s.plan.phase); err != nil {
		return fmt.Errorf("profile the daemon: %w", err)
	}
	return nil
}
