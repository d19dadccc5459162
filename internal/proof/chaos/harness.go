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
	"github.com/cuelight/cuelight/internal/postgres"
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
	dir      string
	cleanups []func() error // the last one is called first
}

// run runs the workers with faults and checks the result. An error means that the run did not
// finish; it says nothing about Cuelight.
func run(ctx context.Context, o options, out io.Writer) (sum summary, err error) {
	h := &harness{options: o, injector: &injector{Log: progresslog.New(out)}}
	started := time.Now()
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
	firstFault, err := h.runPhases(ctx)
	if err != nil {
		return sum, err
	}
	if err := h.stopRetention(ctx); err != nil {
		return sum, err
	}
	f, err := h.check(ctx, firstFault)
	if err != nil {
		return sum, err
	}
	sum = f.summary
	sum.Seed, sum.Seconds = o.seed, float64(time.Since(started).Milliseconds()/100)/10
	sum.Submitted, sum.OutageMS = h.submitter.submitted, h.submitter.outage().Milliseconds()
	sum.Kills, sum.Restarts = int(h.kills.Load()), int(h.restarts.Load())
	h.printReport(&f, sum)
	return sum, nil
}

func (h *harness) onExit(do func()) {
	h.cleanups = append(h.cleanups, func() error { do(); return nil })
}

// build starts everything but the video daemon.
func (h *harness) build(ctx context.Context) (err error) {
	if err := h.makeDir(); err != nil {
		return err
	}
	network, err := h.startServers(ctx)
	if err != nil {
		return err
	}
	size, addrs := workers, []string{h.server.Addr()}
	submitterURL := h.server.URL(database) + "&application_name=" + sessionPrefix + "submitter"
	if h.standby != nil {
		size, addrs = failoverWorkers, append(addrs, h.standby.Addr())
		submitterURL = sessionURL("submitter", addrs...)
	}
	if h.submitter, err = newSubmitter(ctx, submitterURL, h.options.seed); err != nil {
		return err
	}
	h.onExit(h.submitter.pool.Close)
	h.workers = newWorkerPool(h.Log, h.dir, size, addrs...)
	h.onExit(h.workers.close)
	if h.standby == nil {
		h.workers.keep = keepTime(h.options)
		h.workers.addRemote(h.Log)
		h.submitter.placesRemotely = true
		if err := h.workers.addProxies(network); err != nil {
			return err
		}
	}
	return h.workers.start(ctx)
}

func (h *harness) makeDir() (err error) {
	if h.dir = h.options.keepDir; h.dir != "" {
		return os.Mkdir(h.dir, 0o755)
	}
	if h.dir, err = os.MkdirTemp("", "cuelight-chaos-"); err == nil {
		h.cleanups = append(h.cleanups, func() error { return os.RemoveAll(h.dir) })
	}
	return err
}

// startServers starts the server with its tables, and either a standby or, where that is possible,
// the network of one worker.
func (h *harness) startServers(ctx context.Context) (network *networkNamespace, err error) {
	o := postgres.EphemeralOptions{Durable: true, Listen: []string{"127.0.0.1"}}
	if h.options.failover == "" {
		if network, err = newNetworkNamespace(ctx); err == nil {
			h.onExit(network.close)
			o.Listen, o.Trust = append(o.Listen, network.hostIP), []string{network.subnet}
		} else if ctx.Err() == nil {
			h.Logf("no network namespace, using a proxy instead: %v", err)
		}
	}
	if h.server, err = postgres.StartEphemeral(ctx, o); err != nil {
		return nil, err
	}
	h.cleanups = append(h.cleanups, h.server.Close)
	if err := h.server.CreateDatabase(ctx, database); err != nil {
		return nil, err
	}
	if h.options.failover != "" {
		err = h.startStandby(ctx)
		if h.standby != nil {
			h.cleanups = append(h.cleanups, h.standby.Close)
		}
		if err != nil {
			return nil, err
		}
	}
	return network, h.withConn(ctx, func(conn *pgx.Conn) error {
		_, err := store.New(conn, graph()).Migrate(ctx)
		return err
	})
}

// runPhases lets the workers work without faults, then with faults, and then until every
// submission is acknowledged. It returns when the first fault could begin.
func (h *harness) runPhases(ctx context.Context) (firstFault time.Time, err error) {
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
	if h.options.videos {
		if err := h.startVideos(ctx, submitting, &running); err != nil {
			return firstFault, err
		}
	}
	if err := ctxsleep.For(ctx, time.Until(started.Add(h.options.healthy))); err != nil {
		return firstFault, err
	}
	firstFault = time.Now()
	h.Restart()
	if err := h.runFaults(ctx, &running); err != nil {
		return firstFault, err
	}
	h.Logf("all faults have ended")
	stopSubmitting()
	giveUp := time.AfterFunc(acknowledgeTimeout, cancel)
	running.Wait()
	if !giveUp.Stop() {
		h.Logf("some submissions were not acknowledged within %v", acknowledgeTimeout)
	}
	return firstFault, nil
}

// runFaults injects the faults, submits long tasks meanwhile, and returns after the duration.
func (h *harness) runFaults(ctx context.Context, running *sync.WaitGroup) error {
	end := h.Started().Add(h.options.duration)
	running.Go(func() { h.submitter.submitLongTasks(ctx, end.Add(-longWork)) })
	h.Logf("the faults begin")
	if err := h.injector.run(ctx, h.options.plan()); err != nil {
		return err
	}
	return ctxsleep.For(ctx, time.Until(end))
}

// stopRetentionSQL takes the lock of store.Prune.
const stopRetentionSQL = `select pg_advisory_lock(hashtext('cuelight prune chaos_tasks'))`

// stopRetention keeps processes from deleting more tasks while the others are finished: their history is checked.
func (h *harness) stopRetention(ctx context.Context) error {
	if h.workers.keep == 0 {
		return nil
	}
	conn, err := h.connect(ctx)
	if err != nil {
		return err
	}
	h.cleanups = append(h.cleanups, func() error { return conn.Close(context.WithoutCancel(ctx)) })
	_, err = conn.Exec(ctx, stopRetentionSQL)
	return err
}

// startVideos starts the daemon that publishes videos, if ffmpeg is there.
func (h *harness) startVideos(ctx, submitting context.Context, running *sync.WaitGroup) (err error) {
	dir := filepath.Join(h.dir, "videos")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	h.videos, err = newVideoDaemon(ctx, h.Log, dir, h.server)
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
	started, unfinished := time.Now(), 0
	isSettled, err := proofkit.Poll(ctx, settleTimeout, 100*ms, func() (bool, error) {
		err := h.withConn(ctx, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, unfinishedSQL).Scan(&unfinished)
		})
		return unfinished == 0, err
	})
	if err != nil {
		return fmt.Errorf("count unfinished tasks: %w", err)
	}
	if isSettled {
		h.Logf("all tasks are finished, %.1f s later", time.Since(started).Seconds())
	} else {
		h.Logf("%d tasks are not finished after %v", unfinished, settleTimeout)
	}
	return nil
}
