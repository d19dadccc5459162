package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/store"
)

// findings are the result of a run.
type findings struct {
	summary
	lostTasks, duplicates, violations []string
	recoveries                        []recovery
	exhausted                         int // claims of killed workers that were the last attempt
	missedWakes                       int // ready stages that only a sweep found
	playableVideos                    int
	executions, remoteExecutions      int
	switchovers                       []recovery // of remote workers, after the kill of a coordinator
}

// check waits until all tasks are finished, drains the workers, and checks what is there and what
// should not be.
func (h *harness) check(ctx context.Context) (f findings, err error) {
	if err := h.waitUntilSettled(ctx); err != nil {
		return f, err
	}
	h.Logf("stopping the workers")
	f.violations = h.workers.drain()
	h.Logf("the workers have ended")
	d, err := h.readRunData(ctx)
	if err != nil {
		return f, err
	}
	d.check(&f)
	for _, check := range []func(context.Context, *findings) error{
		h.checkInvariants, h.checkVideos, h.checkLeftovers,
	} {
		if err := check(ctx, &f); err != nil {
			return f, err
		}
	}
	if h.options.failover != "" {
		f.violations = append(f.violations, h.submitter.checkFailover(h.faults[0].to)...)
	}
	f.Lost, f.Duplicated, f.Violations = len(f.lostTasks), len(f.duplicates), len(f.violations)
	return f, nil
}

// checkInvariants checks the tables. The rules about lost tasks are in verify.go, since those are
// counted on their own.
func (h *harness) checkInvariants(ctx context.Context, f *findings) error {
	o := invariant.Options{
		Settled: true, NoRetries: true,
		MaxAttempts:        slices.Repeat([]int{maxAttempts}, len(nodes)),
		MaxOrphanTime:      store.DefaultLease + 20*time.Second,
		RolledBack:         h.submitter.rolledBack,
		MaxTransactionTime: time.Minute, // the server may be frozen meanwhile
	}
	return h.withConn(ctx, func(conn *pgx.Conn) error {
		found, err := invariant.Check(ctx, conn, graph(), o)
		for _, v := range found {
			f.violations = append(f.violations, v.String())
		}
		return err
	})
}

// checkVideos ends the daemon and checks what it has published.
func (h *harness) checkVideos(ctx context.Context, f *findings) error {
	if h.videos == nil {
		return nil
	}
	if err := h.videos.waitUntilSettled(ctx); err != nil {
		return err
	}
	f.violations = append(f.violations, h.videos.drain(syscall.SIGTERM)...)
	playable, violations, err := h.videos.check(ctx)
	f.playableVideos, f.violations = playable, append(f.violations, violations...)
	return err
}

// checkLeftovers looks for processes and sessions that are left when everything has ended.
func (h *harness) checkLeftovers(ctx context.Context, f *findings) error {
	h.submitter.pool.Close()
	var ended []*incarnation
	for _, s := range h.workers.all() {
		ended = append(ended, s.all()...)
	}
	if h.videos != nil {
		h.videos.pool.Close()
		ended = append(ended, h.videos.all()...)
	}
	for _, i := range ended {
		processes, err := proofkit.ProcessesInSession(i.PID())
		if err != nil {
			return err
		}
		for _, process := range processes {
			f.violations = append(f.violations, "process left over: "+process)
		}
	}
	return h.withConn(ctx, func(conn *pgx.Conn) error {
		var sessions []string // the server takes a moment to notice that a client is gone
		_, err := proofkit.Poll(ctx, 5*time.Second, 50*ms, func() (_ bool, err error) {
			sessions, err = invariant.Sessions(ctx, conn, sessionPrefix)
			return len(sessions) == 0, err
		})
		for _, session := range sessions {
			f.violations = append(f.violations, "database session left over: "+session)
		}
		return err
	})
}

// checkFailover checks that submissions went on after a failover. With nothing else broken, every
// submission must be acknowledged.
func (s *submitter) checkFailover(promoted time.Time) (violations []string) {
	if n := s.submitted - len(s.acknowledged); n > 0 {
		violations = append(violations, fmt.Sprintf("%d submissions were not acknowledged", n))
	}
	if s.outage == 0 || s.last.Before(promoted) {
		violations = append(violations, "no submission was acknowledged before the failover, or none after it")
	}
	return violations
}

// check applies every rule that needs more than the tables.
func (d *runData) check(f *findings) {
	v := newVerifier(d)
	f.lostTasks, f.duplicates = v.collect(v.lostTasks), v.collect(v.duplicates)
	f.violations = append(f.violations, v.collect(
		v.claimsWithoutHistory, v.historyWithoutExecution, v.earlyStarts, v.wrongJoins, v.overlappingExecutions,
		v.wrongReports, v.deadTasksWithoutCause, v.repeatedConnectionEvents, v.unexplainedExpiries,
		v.wrongDeletions, v.executionsAfterDeletion, v.wrongRetention, v.wrongSubmitters,
		func() { f.missedWakes = v.countMissedWakes() },
	)...)
	f.recoveries, f.exhausted = v.recoveries()
	for _, task := range d.tasks {
		switch {
		case task.isCompleted:
			f.Completed++
		case task.isDead:
			f.Dead++
		}
	}
	for _, id := range d.acknowledged {
		switch _, exists := d.tasks[id]; {
		case !exists && v.isExpired(id):
			f.Expired++
		case !exists && v.wasRemoved(id):
			f.Deleted++
			if v.isPurged(id) {
				f.Purged++
			}
		}
	}
	for _, deletion := range d.deletions {
		if !deletion.restored.IsZero() {
			f.Restored++
		}
	}
	f.executions, f.switchovers = len(v.executions), v.switchovers()
	for _, e := range v.executions {
		if isRemote(v.workerOf(e)) {
			f.remoteExecutions++
		}
	}
	promised := milliseconds(f.recoveries, recovery.isPromised)
	f.P50, f.P99 = percentile(promised, 50), percentile(promised, 99)
	f.RemoteP99 = percentile(milliseconds(f.recoveries, func(r recovery) bool { return r.isPromised() && r.remote }), 99)
	f.SwitchoverP99 = percentile(milliseconds(f.switchovers, recovery.isPromised), 99)
}
