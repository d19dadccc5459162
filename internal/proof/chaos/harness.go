package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
)

const (
	failoverWorkers = 3
	// settleTimeout is how long the workers may take to finish all tasks after the faults: a
	// lease, sweeps, and the waits between attempts.
	settleTimeout = 2 * time.Minute
	// acknowledgeTimeout is how long submissions may be repeated after the faults.
	acknowledgeTimeout = 30 * time.Second
)

// keepTime is for how long finished tasks are kept: a part of the duration, so that many of them are there at the end. Tasks whose
// submission is repeated must not be deleted before.
func keepTime(o options) time.Duration { return max(o.duration/3, 5*time.Second) }

// harness has everything that runs.
type harness struct {
	*injector
	options  options
	dir      string         // of the logs
	isWrong  bool           // something was found
	cleanups []func() error // the last one is called first
}

// run runs the workers with faults and checks the result. An error means that the run did not
// finish; it says nothing about Cuelight.
func run(ctx context.Context, o options, out io.Writer) (sum summary, err error) {
	h := &harness{options: o, injector: &injector{Log: progresslog.New(out), deletions: make(map[store.ID]*deletion)}}
	started := time.Now()
	if o.healthy == 0 && o.failover == "" {
		h.options.healthy = 20 * time.Second // which would show a worker that no notification reaches
	} else if o.healthy == 0 {
		h.options.healthy = 8 * time.Second
	}
	defer func() {
		for i := len(h.cleanups) - 1; i >= 0; i-- {
			err = errors.Join(err, h.cleanups[i]())
		}
	}()
	if o.failover == "" {
		h.Logf("seed %d, duration %v", o.seed, o.duration)
	}
	if err := h.build(ctx); err != nil {
		return sum, err
	}
	if err := h.runPhases(ctx); err != nil {
		return sum, err
	}
	if err := h.stopRetention(ctx); err != nil {
		return sum, err
	}
	f, err := h.check(ctx)
	if err != nil {
		return sum, err
	}
	sum = f.summary
	sum.Seed, sum.Seconds = o.seed, float64(time.Since(started).Milliseconds()/100)/10
	sum.Submitted = h.submitter.submitted
	if o.failover != "" {
		sum.OutageMS = h.submitter.outage.Milliseconds()
	}
	sum.Kills, sum.Restarts = int(h.kills.Load()), int(h.restarts.Load())
	h.isWrong = !sum.passed()
	h.printReport(&f, sum)
	return sum, nil
}

func (h *harness) onExit(do func()) {
	h.cleanups = append(h.cleanups, func() error { do(); return nil })
}

// build starts everything but the video daemon.
func (h *harness) build(ctx context.Context) (err error) {
	if h.dir, err = os.MkdirTemp("", "cuelight-chaos-"); err != nil {
		return err
	}
	h.cleanups = append(h.cleanups, func() error {
		if h.isWrong {
			h.Logf("the logs are in %s", h.dir)
			return nil
		}
		return os.RemoveAll(h.dir)
	})
	if err := h.startServers(ctx); err != nil {
		return err
	}
	size, addrs := workers, []string{h.server.Addr()}
	if h.standby != nil {
		size, addrs = failoverWorkers, append(addrs, h.standby.Addr())
	}
	if h.submitter, err = newSubmitter(ctx, sessionURL("submitter", addrs...), h.options.seed); err != nil {
		return err
	}
	h.onExit(h.submitter.pool.Close)
	h.workers = &workerPool{log: h.Log, dir: h.dir, addrs: addrs, ownHosts: canOwnHostname()}
	h.onExit(h.workers.close)
	h.workers.addWorkers(size)
	if h.standby == nil {
		h.workers.keep = keepTime(h.options)
		h.workers.addCoordinators()
		h.workers.addWorkers(remoteWorkers)
		h.submitter.placesRemotely = true
		if err := h.workers.addProxies(); err != nil {
			return err
		}
	}
	return h.workers.start(ctx)
}

// startServers starts the server with its tables, and perhaps a synchronous standby.
func (h *harness) startServers(ctx context.Context) (err error) {
	o := pgtest.EphemeralOptions{Durable: true, Listen: []string{"127.0.0.1"}}
	if h.server, err = pgtest.StartEphemeral(ctx, o); err != nil {
		return err
	}
	h.cleanups = append(h.cleanups, h.server.Close)
	if err := h.server.CreateDatabase(ctx, database); err != nil {
		return err
	}
	if h.options.failover != "" {
		if err := h.startStandby(ctx); err != nil {
			return err
		}
	}
	return h.withConn(ctx, func(conn *pgx.Conn) error {
		_, err := store.New(conn, graph()).Migrate(ctx)
		return err
	})
}

// standbyTimeout is how long it may take until the standby is synchronous.
const standbyTimeout = time.Minute

func (h *harness) startStandby(ctx context.Context) (err error) {
	const name, isSyncSQL = "standby", "select exists (select from pg_stat_replication where sync_state = 'sync')"
	if h.standby, err = h.server.Standby(ctx, name); err != nil {
		return err
	}
	h.cleanups = append(h.cleanups, h.standby.Close)
	if err := h.server.Set(ctx, "synchronous_standby_names", name); err != nil {
		return err
	}
	isSync, err := proofkit.Poll(ctx, standbyTimeout, 20*ms, func() (isSync bool, err error) {
		err = h.withConn(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, isSyncSQL).Scan(&isSync) })
		return isSync, err
	})
	if err != nil || !isSync {
		return fmt.Errorf("the standby is not synchronous after %v: %w", standbyTimeout, err)
	}
	h.Logf("primary at %s, synchronous standby at %s", h.server.Addr(), h.standby.Addr())
	return nil
}

// runPhases lets the workers work without faults, then with faults, and then until every
// submission is acknowledged.
func (h *harness) runPhases(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	submitting, stopSubmitting := context.WithCancel(ctx)
	defer stopSubmitting()
	started := time.Now()
	running.Go(func() { h.submitter.run(ctx, submitting) })
	h.Logf("%d workers, %d of them remote at %d coordinators; about %d submitted tasks a second",
		len(h.workers.slots), max(len(h.workers.slots)-workers, 0), len(h.workers.coordinators), tasksPerSecond)
	if h.options.failover == "" {
		if err := h.startVideos(ctx, submitting, &running); err != nil {
			return err
		}
	}
	if err := ctxsleep.For(ctx, time.Until(started.Add(h.options.healthy))); err != nil {
		return err
	}
	h.Restart()
	h.Logf("the faults begin")
	end := h.Started().Add(h.options.duration)
	h.submitter.longUntil.Store(new(end.Add(-longWork)))
	if err := h.injector.run(ctx, h.options.plan()); err != nil {
		return err
	}
	if err := ctxsleep.For(ctx, time.Until(end)); err != nil {
		return err
	}
	h.Logf("all faults have ended")
	stopSubmitting()
	giveUp := time.AfterFunc(acknowledgeTimeout, cancel)
	running.Wait()
	if !giveUp.Stop() {
		h.Logf("some submissions were not acknowledged within %v", acknowledgeTimeout)
	}
	return nil
}

// stopRetention keeps processes from deleting more tasks while the others are finished: their history is checked. It takes
// the lock of store.Prune.
func (h *harness) stopRetention(ctx context.Context) error {
	if h.workers.keep == 0 {
		return nil
	}
	conn, err := h.connect(ctx)
	if err != nil {
		return err
	}
	h.cleanups = append(h.cleanups, func() error { return conn.Close(context.WithoutCancel(ctx)) })
	_, err = conn.Exec(ctx, "select pg_advisory_lock(hashtext('cuelight prune chaos_tasks'))")
	return err
}

// startVideos starts the daemon that publishes videos, if ffmpeg is there.
func (h *harness) startVideos(ctx, submitting context.Context, running *sync.WaitGroup) (err error) {
	h.videos, err = newVideoDaemon(ctx, h.Log, filepath.Join(h.dir, "videos"), h.server)
	if errors.Is(err, errNoVideos) {
		h.Logf("%v", err)
		return nil
	}
	if err != nil {
		return err
	}
	h.onExit(h.videos.close)
	h.Logf("a daemon publishes videos")
	running.Go(func() { h.videos.submitVideos(ctx, submitting) })
	return nil
}

// waitUntilSettled waits until every task is finished, or until the timeout.
func (h *harness) waitUntilSettled(ctx context.Context) error {
	unfinished := 0
	_, err := proofkit.Poll(ctx, settleTimeout, 100*ms, func() (bool, error) {
		err := h.withConn(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, unfinishedSQL).Scan(&unfinished)
		})
		return unfinished == 0, err
	})
	if err != nil {
		return fmt.Errorf("count unfinished tasks: %w", err)
	}
	if unfinished == 0 {
		h.Logf("all tasks are finished")
	} else {
		h.Logf("%d tasks are not finished after %v", unfinished, settleTimeout)
	}
	return nil
}
