package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
)

// injector injects the faults of a plan.
type injector struct {
	*progresslog.Log
	server    *pgtest.Ephemeral // the primary
	standby   *pgtest.Ephemeral // nil without -failover
	workers   *workerPool
	videos    *videoDaemon // nil without videos
	submitter *submitter

	kills, restarts atomic.Int32
	serverMu        sync.Mutex // held while the server is away, which may take longer than planned

	mu        sync.Mutex // guards the rest
	faults    []*fault
	deletions map[store.ID]*deletion
}

// fault is a period in which something was broken. The rules make exceptions for it.
type fault struct {
	step
	from, to time.Time
	isFailed bool // it was not possible
}

// run injects every fault at its time, and returns when all have ended. An error means that
// something is still broken.
func (i *injector) run(ctx context.Context, p plan) error {
	var steps sync.WaitGroup
	for _, s := range p {
		if ctxsleep.For(ctx, time.Until(i.Started().Add(s.at))) != nil {
			break
		}
		steps.Go(func() { i.runStep(ctx, s) })
	}
	steps.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return i.repair()
}

// runStep runs one step, from its beginning to its end.
func (i *injector) runStep(ctx context.Context, s step) {
	f := &fault{step: s, from: time.Now()}
	i.mu.Lock()
	i.faults = append(i.faults, f)
	i.mu.Unlock()
	i.Logf("%s", s)
	err := i.inject(ctx, s)
	i.mu.Lock()
	defer i.mu.Unlock()
	f.to = time.Now()
	if err != nil && ctx.Err() == nil {
		f.isFailed = true
		i.Logf("%s: not possible: %s", s.kind, progresslog.Brief(err))
	}
}

func (i *injector) inject(ctx context.Context, s step) error {
	switch s.kind {
	case killWorker, killCoordinator, powerLoss, freezeWorker, blackHole, holdTraffic, resetConnections:
		return i.breakWorker(ctx, s, i.workers.all()[s.worker])
	case restartServer, killServer, freezeServer:
		return i.breakServer(ctx, s)
	case failoverKill, failoverReadOnly:
		return i.failOver(ctx, s)
	case killDaemon, freezeDaemon:
		return i.breakDaemon(ctx, s)
	case deleteTasks:
		return i.deleteTasks(ctx, s)
	}
	return i.breakDatabase(ctx, s)
}

// breakWorker breaks one worker, or its connections, or a coordinator.
func (i *injector) breakWorker(ctx context.Context, s step, w *slot) error {
	switch s.kind {
	case killWorker, killCoordinator:
		return i.killAndStart(ctx, w, s.duration)
	case freezeWorker:
		if s.duration < store.DefaultLease {
			return freeze(ctx, w, s.duration)
		}
		// Until it has reported its outcomes; see logWriter.waitWhileSlow.
		file := filepath.Join(i.workers.dir, fmt.Sprintf("slow-%d", s.worker))
		defer os.Remove(file)
		listing := time.AfterFunc(100*ms, func() { _ = i.listClaims(ctx, w.current().PID(), file) })
		defer listing.Stop()
		return errors.Join(freeze(ctx, w, s.duration), ctxsleep.For(ctx, 3*time.Second))
	case resetConnections:
		w.proxy.resetAll()
		return nil
	}
	w.proxy.hold()
	if s.kind == powerLoss {
		i.kill(w) // while the proxy keeps its end from the server
	}
	err := ctxsleep.For(ctx, s.duration)
	w.proxy.release(s.kind != holdTraffic)
	return errors.Join(err, w.start())
}

// kill kills the current incarnation of a slot, if it runs.
func (i *injector) kill(s *slot) {
	if current := s.current(); !current.hasEnded() {
		current.kill()
		i.kills.Add(1)
	}
}

func (i *injector) killAndStart(ctx context.Context, s *slot, d time.Duration) error {
	i.kill(s)
	if err := ctxsleep.For(ctx, d); err != nil {
		return err
	}
	return s.start()
}

// freeze stops a process and continues it.
func freeze(ctx context.Context, s *slot, d time.Duration) error {
	process := s.current()
	_ = process.Signal(syscall.SIGSTOP) // it may have ended
	err := ctxsleep.For(ctx, d)
	_ = process.Signal(syscall.SIGCONT)
	return err
}

const claimsSQL = `
select coalesce(string_agg(distinct s.task_id::text, ' '), '')
  from chaos_steps s join chaos_workers w on w.id = s.locked_by
 where w.pid = $1`

// listClaims writes the tasks that a frozen process has claimed into a file.
func (i *injector) listClaims(ctx context.Context, pid int, file string) error {
	return proofkit.Retry(ctx, faultTimeout, func(ctx context.Context) error {
		var list string
		err := i.withConn(ctx, func(conn *pgx.Conn) error { return conn.QueryRow(ctx, claimsSQL, pid).Scan(&list) })
		if err != nil {
			return err
		}
		return os.WriteFile(file, []byte(list), 0o644)
	})
}

// breakDaemon breaks the daemon that publishes videos.
func (i *injector) breakDaemon(ctx context.Context, s step) error {
	if i.videos == nil {
		return errNoVideos
	}
	if s.kind == freezeDaemon {
		return freeze(ctx, i.videos.slot, s.duration)
	}
	if err := i.videos.waitForNoRetries(ctx); err != nil {
		return err
	}
	return i.killAndStart(ctx, i.videos.slot, s.duration)
}

// breakServer stops or freezes the server, and starts it again.
func (i *injector) breakServer(ctx context.Context, s step) (err error) {
	repairCtx := context.WithoutCancel(ctx)
	i.serverMu.Lock()
	defer i.serverMu.Unlock()
	switch s.kind {
	case killServer:
		err = i.server.Kill()
	case freezeServer:
		err = i.server.Freeze()
	default:
		stopCtx, cancel := context.WithTimeout(repairCtx, 20*time.Second)
		if err = i.server.Stop(stopCtx, pgtest.Fast); err != nil { // it hangs, which is not what this program tests
			err = i.server.Stop(repairCtx, pgtest.Immediate)
		}
		cancel()
	}
	if err == nil {
		err = ctxsleep.For(ctx, s.duration)
	}
	if err != nil {
		return err // the harness closes the server
	}
	if s.kind == freezeServer {
		return i.server.Thaw()
	}
	i.restarts.Add(1)
	return i.server.Start(repairCtx)
}

// promoteAfter is how long the primary is away before the standby is promoted.
const promoteAfter = 2 * time.Second

// failOver takes the primary away, and promotes the standby some time later. The standby is the
// server from then on.
func (i *injector) failOver(ctx context.Context, s step) (err error) {
	if s.kind == failoverReadOnly {
		err = i.server.Set(ctx, "default_transaction_read_only", "on")
	} else {
		err = i.server.Kill()
	}
	if err == nil {
		err = ctxsleep.For(ctx, s.duration)
	}
	if err == nil {
		err = i.standby.Promote(ctx)
	}
	if err != nil {
		return err
	}
	i.server, i.standby = i.standby, i.server
	i.Logf("the standby is promoted")
	return nil
}

// repair starts everything that a fault may have left ended.
func (i *injector) repair() error {
	for _, s := range i.workers.all() {
		if err := s.start(); err != nil {
			return err
		}
	}
	if i.videos != nil {
		return i.videos.start()
	}
	return nil
}
