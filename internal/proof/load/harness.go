package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
)

const database = "cuelight"

// missingFile is part of the path of sources that do not exist.
const missingFile = "/no-such-file-"

// harness has everything that is measured, and everything that measures it.
type harness struct {
	*progresslog.Log
	options    options
	dir        string
	server     *pgtest.Ephemeral
	postmaster int // the server's first process
	pool       *pgxpool.Pool
	store      *store.Store
	daemon     *daemon
	seen       observation
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
	g.Go(func() error { return h.submitTasks(ctx) })
	g.Go(func() error { return h.submitVideos(ctx) })
	var phases []phase
	g.Go(func() (err error) {
		defer stop()
		phases, err = h.runPhases(ctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return sum, err
	}
	sum = summarize(phases, h.seen)
	sum.DaemonErrors = h.daemon.errors()
	h.Printf("%s", sum.table())
	for _, text := range append(sum.FirstErrors, sum.DaemonErrors...) {
		h.Logf("%s", text)
	}
	return sum, nil
}

// build starts the server and the daemon.
func (h *harness) build(ctx context.Context) (err error) {
	if h.dir, err = os.MkdirTemp("", "cuelight-load-"); err != nil {
		return err
	}
	if h.server, err = pgtest.StartEphemeral(ctx, pgtest.EphemeralOptions{Durable: true}); err != nil {
		return err
	}
	if err := h.server.CreateDatabase(ctx, database); err != nil {
		return err
	}
	if h.pool, err = pgxpool.New(ctx, h.server.URL(database)); err != nil {
		return err
	}
	h.store = store.New(h.pool, store.Video())
	if _, err := h.store.Migrate(ctx); err != nil {
		return err
	}
	if err := operators.Migrate(ctx, h.pool); err != nil {
		return err
	}
	const postmasterSQL = `select split_part(pg_read_file('postmaster.pid'), e'\n', 1)::int`
	if err := h.pool.QueryRow(ctx, postmasterSQL).Scan(&h.postmaster); err != nil {
		return err
	}
	h.daemon, err = startDaemon(ctx, h.options.program, h.dir, h.server.URL(database))
	return err
}

func (h *harness) close() (err error) {
	if h.daemon != nil {
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errors.New("the daemon did not end within a minute"))
		defer cancel()
		_ = h.daemon.Stop(ctx, syscall.SIGTERM) // its log says why it ended
		err = context.Cause(ctx)
	}
	if h.pool != nil {
		h.pool.Close()
	}
	if h.server != nil {
		err = errors.Join(err, h.server.Close())
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}

// submitTasks submits tasks until ctx is done, at random intervals.
func (h *harness) submitTasks(ctx context.Context) error {
	for i := 0; ctxsleep.For(ctx, rand.N(2*time.Second/time.Duration(h.options.tasksPerSecond))) == nil; i++ {
		_, err := h.store.Submit(ctx, store.Submission{Source: fmt.Sprint(h.dir, missingFile, i)})
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// submitVideos keeps two videos in the pipeline, so that one is always being transcoded, which takes a few seconds.
func (h *harness) submitVideos(ctx context.Context) error {
	clip := filepath.Join(h.dir, "clip.mp4")
	if err := proofkit.MakeClip(ctx, clip, "testsrc2=size=640x360:rate=25", 8*time.Second, true); err != nil {
		return err
	}
	for ctx.Err() == nil {
		unfinished := 0
		const unfinishedSQL = "select count(*) from tasks where state in ('pending', 'inprogress') and source = $1"
		err := h.pool.QueryRow(ctx, unfinishedSQL, clip).Scan(&unfinished)
		for ; err == nil && unfinished < 2; unfinished++ {
			_, err = h.store.Submit(ctx, store.Submission{Source: clip})
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		_ = ctxsleep.For(ctx, time.Second) // the loop sees that ctx is done
	}
	return nil
}

// runPhases measures alternately without clients and with them.
func (h *harness) runPhases(ctx context.Context) (all []phase, err error) {
	for isBusy := false; !isBusy; { // the daemon transcodes a video
		const isBusySQL = "select exists (select from tasks where transcode_status in ('inprogress', 'divided'))"
		if err := h.pool.QueryRow(ctx, isBusySQL).Scan(&isBusy); err != nil {
			return nil, err
		}
		if err := ctxsleep.For(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	var tasks []string
	if err := h.pool.QueryRow(ctx, "select array_agg(id::text) from tasks").Scan(&tasks); err != nil {
		return nil, err
	}
	for i := range 2 * h.options.pairs {
		p := phase{withClients: i%2 == 1}
		var c *clients
		if p.withClients {
			c = connectClients(ctx, h.daemon.server, h.options, tasks, &h.seen)
		}
		err := ctxsleep.For(ctx, h.options.warmup)
		if err == nil {
			err = h.measure(ctx, &p)
		}
		if p.withClients {
			err = errors.Join(err, h.disconnect(ctx, c))
		}
		if err != nil {
			return nil, err
		}
		h.Logf("with clients: %t, waits p50 %.1f p99 %.1f ms (%d), memory %.0f MiB, processors %.2f", p.withClients,
			proofkit.Percentile(p.waits, 50), proofkit.Percentile(p.waits, 99), len(p.waits), mebibytes(p.resident), p.cpu)
		all = append(all, p)
	}
	return all, nil
}

// disconnect compares what the streams received with the events in the database.
func (h *harness) disconnect(ctx context.Context, c *clients) error {
	var last int64
	err := h.pool.QueryRow(ctx, "select max(id) from events").Scan(&last)
	counts := c.disconnect(last)
	var ids []int64
	if err == nil {
		err = h.pool.QueryRow(ctx, "select coalesce(array_agg(id order by id), '{}') from events").Scan(&ids)
	}
	for _, wrong := range compareStreams(ids, counts) {
		c.addError(errors.New(wrong))
	}
	return err
}

// cpuTimes returns the processor times of the daemon and PostgreSQL.
func (h *harness) cpuTimes() ([2]time.Duration, error) {
	daemon, err := proofkit.UsageOf(h.daemon.PID())
	postgres, postgresErr := proofkit.FamilyCPUTime(h.postmaster)
	return [2]time.Duration{daemon.CPU, postgres}, errors.Join(err, postgresErr)
}

const waitsSQL = `
select coalesce(array_agg((extract(epoch from a.started_at - t.created_at) * 1000)::float8), '{}')
  from attempts a join tasks t on t.id = a.task_id
 where a.stage = 'ingest' and a.attempt = 1 and strpos(t.source, $1) > 0 and t.created_at >= $2`

// measure measures one phase.
func (h *harness) measure(ctx context.Context, p *phase) error {
	var from time.Time
	if err := h.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&from); err != nil {
		return err
	}
	started := time.Now()
	before, err := h.cpuTimes()
	for end := started.Add(h.options.phase); err == nil && time.Now().Before(end); {
		if err = ctxsleep.For(ctx, 250*time.Millisecond); err == nil {
			var u proofkit.Usage
			u, err = proofkit.UsageOf(h.daemon.PID())
			p.resident = max(p.resident, u.Resident)
		}
	}
	after, afterErr := h.cpuTimes()
	if err := errors.Join(err, afterErr); err != nil {
		return err
	}
	for i := range p.cpu {
		p.cpu[i] = (after[i] - before[i]).Seconds() / time.Since(started).Seconds()
	}
	return h.pool.QueryRow(ctx, waitsSQL, missingFile, from).Scan(&p.waits)
}
