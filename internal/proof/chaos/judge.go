package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// findings are what came of it all.
type findings struct {
	summary
	lost, duplicated, violations []string
	rescues                      []rescue
	buried                       int // claims of killed workers that were the last attempt
	missed                       int // wakes that the sweep had to make good
	videos                       int // published
}

// judge waits until all is done, lets the workers drain, and looks at what is
// there, and at what should not be.
func (t *theatre) judge(ctx context.Context, calm time.Time) (v findings, err error) {
	if err := t.settle(ctx); err != nil {
		return v, err
	}
	if t.studio != nil {
		if err := t.studio.settle(ctx); err != nil {
			return v, err
		}
	}
	t.Logf("the workers are told to end")
	v.violations = t.crew.drain()
	t.Logf("the workers have ended")
	e, err := t.evidence(ctx, calm)
	if err != nil {
		return v, err
	}
	e.judge(&v)
	if err := t.invariants(ctx, &v); err != nil {
		return v, err
	}
	if t.studio != nil {
		v.violations = append(v.violations, t.studio.drain()...)
		good, wrong, err := t.studio.judge(ctx)
		if err != nil {
			return v, err
		}
		v.videos, v.violations = good, append(v.violations, wrong...)
	}
	t.load.pool.Close()
	if err := t.leftovers(ctx, &v); err != nil {
		return v, err
	}
	v.Lost, v.Duplicated, v.Violations = len(v.lost), len(v.duplicated), len(v.violations)
	return v, nil
}

func (t *theatre) invariants(ctx context.Context, v *findings) error {
	most := slices.Repeat([]int{maxAttempts}, len(needs))
	return t.session(ctx, func(conn *pgx.Conn) error {
		found, err := invariant.Check(ctx, conn, graph(), invariant.Options{
			Settled: true, NoRetries: true, MaxAttempts: most, MaxOrphanTime: store.DefaultLease + 20*time.Second,
			RolledBack: t.load.undone, // what was acknowledged is looked for, and counted, elsewhere
			// A frozen server does not count.
			MaxTransactionTime: time.Minute,
			TriggersOff:        untold(t.faults.list()),
		})
		for _, one := range found {
			v.violations = append(v.violations, one.String())
		}
		return err
	})
}

// untold are the times in which the triggers were off.
func untold(all []fault) (times []invariant.Period) {
	for _, f := range all {
		if f.kind == triggers {
			times = append(times, invariant.Period{From: f.from, To: f.to})
		}
	}
	return times
}

// sessionsWithin is how long the server may take to notice that a client is
// gone.
const sessionsWithin = 5 * time.Second

// leftovers are sessions of ours and processes in ours, when all have ended.
func (t *theatre) leftovers(ctx context.Context, v *findings) error {
	processes := []*process{}
	for _, l := range t.crew.lives() {
		processes = append(processes, l.process)
	}
	if t.studio != nil {
		t.studio.pool.Close()
		processes = append(processes, t.studio.processes...)
	}
	for _, p := range processes {
		left, err := proofkit.ProcessesInSession(p.pid())
		if err != nil {
			return err
		}
		for _, one := range left {
			v.violations = append(v.violations, "a process is left: "+one)
		}
	}
	return t.session(ctx, func(conn *pgx.Conn) error {
		for late := time.Now().Add(sessionsWithin); ; {
			left, err := invariant.Sessions(ctx, conn, ourSessions)
			if err != nil {
				return err
			}
			if len(left) == 0 || time.Now().After(late) {
				for _, one := range left {
					v.violations = append(v.violations, "a session is left: "+one)
				}
				return nil
			}
			if err := pause(ctx, 50*ms); err != nil {
				return err
			}
		}
	})
}

// judge applies every rule that is about more than the database.
func (e *evidence) judge(v *findings) {
	c := newCase(e)
	v.lost = e.lost()
	v.duplicated = c.duplicated()
	for _, rule := range []func() []string{
		c.unexplained, c.unworked, c.early, c.overlaps, c.misspoken, c.deadForNothing, c.repetitions,
	} {
		v.violations = append(v.violations, rule()...)
	}
	unhealthy, missed := e.missed()
	v.missed, v.violations = missed, append(v.violations, unhealthy...)
	v.rescues, v.buried = c.rescues()
	for _, task := range e.tasks {
		switch {
		case task.completed:
			v.Completed++
		case task.dead:
			v.Dead++
		}
	}
	v.P50, v.P99 = percentiles(v.rescues, func(r rescue) bool { return r.calm && !r.silent })
}

// lost is what was acknowledged and is not there, or has not ended.
func (e *evidence) lost() []string {
	var found []string
	for request, id := range e.acknowledged {
		switch task, ok := e.tasks[id]; {
		case !ok:
			found = append(found, fmt.Sprintf("%s: task %s is not there", request, id))
		case task.request != request:
			found = append(found, fmt.Sprintf("%s: task %s is that of %s", request, id, task.request))
		case task.open || !task.completed && !task.dead:
			found = append(found, fmt.Sprintf("%s: task %s has not ended", request, id))
		}
	}
	slices.Sort(found)
	return found
}

// missed counts the wakes that the sweep had to make good. In health there is
// none.
func (e *evidence) missed() (unhealthy []string, n int) {
	for _, l := range e.lives {
		for _, x := range l.entries {
			if x.How != string(stages.WakeMissed) {
				continue
			}
			n += x.Count
			if x.at().Before(e.calm) {
				unhealthy = append(unhealthy, fmt.Sprintf("worker %d was not woken for %d claims of %s, before anything was broken",
					l.worker+1, x.Count, x.Stage))
			}
		}
	}
	return unhealthy, n
}
