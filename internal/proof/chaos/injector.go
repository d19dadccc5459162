package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
)

// injector injects the faults of a plan.
type injector struct {
	*progresslog.Log
	faultLog
	server    *postgres.Ephemeral // the primary
	standby   *postgres.Ephemeral // nil without -failover
	workers   *workerPool
	videos    *videoDaemon // nil without videos
	submitter *submitter

	serverMu        sync.Mutex   // held while a fault of the server is present
	triggersMu      sync.RWMutex // held while triggers are disabled
	deletions       deletionLog
	kills, restarts atomic.Int32

	mu               sync.Mutex
	injected, failed map[string]int // steps, by name
}

// run injects every fault at its time, and returns when all have ended. An error means that
// something is still broken.
func (i *injector) run(ctx context.Context, p plan) error {
	i.injected, i.failed = make(map[string]int), make(map[string]int)
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
	return i.repair(ctx)
}

// runStep runs one step, from its beginning to its end.
func (i *injector) runStep(ctx context.Context, s step) {
	err := i.inject(ctx, s)
	if ctx.Err() != nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.failed[s.name()]++
		i.Logf("%s: not possible: %s", s.name(), progresslog.Brief(err))
		return
	}
	i.injected[s.name()]++
}

func (i *injector) inject(ctx context.Context, s step) error {
	switch {
	case s.kind == failoverKill, s.kind == failoverReadOnly:
		return i.failOver(ctx, s)
	case s.kind.needsWorker():
		return i.injectWorkerFault(ctx, s, i.workers.slots[s.worker])
	case s.kind.needsDaemon():
		return i.injectDaemonFault(ctx, s)
	case s.kind == killCoordinator:
		return i.killCoordinator(ctx, s)
	case slices.Contains(serverFaults[:], s.kind):
		return i.injectServerFault(ctx, s)
	}
	return i.injectDatabaseFault(ctx, s)
}

// logStart logs that a step begins.
func (i *injector) logStart(s step) { i.Logf("%s", s.title()) }

// injectWorkerFault breaks one worker, or its connections.
func (i *injector) injectWorkerFault(ctx context.Context, s step, w *workerSlot) error {
	switch s.kind {
	case freezeWorker:
		return i.freezeWorker(ctx, s, w)
	case killWorker:
		i.logStart(s)
		i.kill(&w.slot)
		return i.startAfter(ctx, &w.slot, s.duration)
	case powerLoss:
		// The worker dies while the network keeps its end from the server.
		i.logStart(s)
		err := i.breakConnections(ctx, s, w, func() error {
			i.kill(&w.slot)
			return ctxsleep.For(ctx, s.duration)
		})
		if err != nil {
			return err
		}
		return w.start()
	case resetConnections:
		i.logStart(s)
		w.proxy.resetAll()
		return nil
	}
	i.logStart(s)
	return i.breakConnections(ctx, s, w, func() error { return ctxsleep.For(ctx, s.duration) })
}

// kill kills the current incarnation of a slot, if it runs.
func (i *injector) kill(s *slot) {
	if current := s.current(); !current.hasEnded() {
		current.kill()
		i.kills.Add(1)
	}
}

// killCoordinator kills a coordinator and starts it again, as a fault that lasts as long.
func (i *injector) killCoordinator(ctx context.Context, s step) error {
	c := i.workers.coordinators[s.coordinator]
	i.logStart(s)
	defer i.record(s.kind, noWorker)()
	i.kill(&c.slot)
	return i.startAfter(ctx, &c.slot, s.duration)
}

func (i *injector) startAfter(ctx context.Context, s *slot, d time.Duration) error {
	if err := ctxsleep.For(ctx, d); err != nil {
		return err
	}
	return s.start()
}

// freezeWorker stops a worker and continues it. If that takes longer than the worker's lease,
// others have its claims by then, and still work on them when it goes on.
func (i *injector) freezeWorker(ctx context.Context, s step, w *workerSlot) error {
	process := w.current()
	if process.hasEnded() {
		return nil
	}
	i.logStart(s)
	endFault := i.record(freezeWorker, s.worker)
	process.freeze()
	if s.duration > store.DefaultLease {
		file := filepath.Join(i.workers.dir, slowTasksFile)
		if err := i.listClaims(ctx, process.PID(), file); err != nil {
			i.Logf("%s: cannot list the claims of %s: %s", s.kind, w.name, progresslog.Brief(err))
		}
		defer os.Remove(file)
		defer func() { _ = ctxsleep.For(ctx, 3*time.Second) }() // until the worker has reported its outcomes
	}
	err := ctxsleep.For(ctx, s.duration)
	process.thaw()
	endFault()
	return err
}

// proxyModes are how a proxy injects each kind of fault.
var proxyModes = map[faultKind]proxyMode{
	powerLoss:         {dropToServer: true, dropToClient: true},
	linkDown:          {dropToServer: true, dropToClient: true},
	blackHole:         {dropToServer: true, dropToClient: true},
	dropFromServer:    {dropToClient: true},
	dropToServer:      {dropToServer: true},
	holdTraffic:       {hold: true},
	delayTraffic:      {delay: 60 * ms},
	refuseConnections: {refuse: true},
}

// breakConnections breaks the connections of a worker as long as during runs.
func (i *injector) breakConnections(ctx context.Context, s step, w *workerSlot, during func() error) error {
	repairCtx := context.WithoutCancel(ctx)
	breakIt := func() error { return w.network.setLink(repairCtx, false) }
	repair := func() error { return w.network.setLink(repairCtx, true) }
	if w.network == nil {
		breakIt = func() error { return w.proxy.set(proxyModes[s.kind]) }
		repair = func() error { return w.proxy.set(proxyMode{}) }
	}
	endFault := i.record(s.kind, s.worker)
	if err := breakIt(); err != nil {
		return err
	}
	err := during()
	repairErr := proofkit.Retry(repairCtx, 10*time.Second, func(context.Context) error { return repair() })
	if repairErr != nil {
		return repairErr
	}
	endFault()
	return err
}

// repair ends everything that a fault may have left broken.
func (i *injector) repair(ctx context.Context) error {
	if err := i.enableTriggers(ctx); err != nil {
		return fmt.Errorf("enable triggers: %w", err)
	}
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

// injectDaemonFault breaks the daemon that publishes videos.
func (i *injector) injectDaemonFault(ctx context.Context, s step) error {
	if i.videos == nil {
		return errNoVideos
	}
	switch s.kind {
	case killFFmpeg:
		return i.killFFmpeg(ctx, s)
	case freezeDaemon:
		i.logStart(s)
		process := i.videos.current()
		process.freeze()
		err := ctxsleep.For(ctx, s.duration)
		process.thaw()
		return err
	}
	if err := i.videos.waitForNoRetries(ctx, faultTimeout); err != nil {
		return err
	}
	i.logStart(s)
	i.kill(&i.videos.slot)
	return i.startAfter(ctx, &i.videos.slot, s.duration)
}

// killFFmpeg waits for an ffmpeg of the daemon, and kills it.
func (i *injector) killFFmpeg(ctx context.Context, s step) error {
	if err := i.videos.waitForNoRetries(ctx, s.duration); err != nil {
		return err
	}
	isKilled, err := proofkit.Poll(ctx, s.duration, 5*ms, func() (bool, error) { return i.videos.killFFmpeg(), nil })
	if err == nil && !isKilled {
		return fmt.Errorf("no ffmpeg ran for %v", s.duration)
	}
	if err == nil {
		i.kills.Add(1)
		i.logStart(step{kind: s.kind, worker: noWorker})
	}
	return err
}
