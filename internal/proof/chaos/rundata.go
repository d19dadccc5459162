package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// runData is what the rules compare: the tables, the worker logs, and what this program did itself.
type runData struct {
	firstFault   time.Time // nothing was broken before
	acknowledged map[string]store.ID
	submissions  map[string]store.Submission // by request id
	rolledBack   []string
	tasks        map[store.ID]taskRow
	history      []attemptRow
	logs         []workerLog
	faults       []*fault
	deletions    map[store.ID]*deletion
	deletedRows  map[store.ID]deletedRow
	keep         time.Duration // of finished tasks, by workers that delete them
}

// taskRow is a task at the end of the run.
type taskRow struct {
	id           store.ID
	request      string
	user         string
	context      string // of the submitter
	isCompleted  bool   // all stages are
	isDead       bool   // a stage is
	isUnfinished bool   // a stage is in progress or divided, or can be claimed now or later: it has a step
}

// attemptRow is a row of the history.
type attemptRow struct {
	stageKey
	token    store.ID
	attempt  int
	worker   store.ID
	finished time.Time
	outcome  string
	class    string
}

// These statements read the tables directly, not through the package under test. Open work has steps.
const (
	tasksSQL = `
select id, coalesce(request_id, ''), coalesce(user_id, ''), coalesce(user_context::text, ''), state = 'completed', state = 'dead',
       id in (select task_id from chaos_steps where status not in ('completed', 'stopped'))
  from chaos_tasks`
	unfinishedSQL = `
select (select count(distinct task_id) from chaos_steps where status not in ('completed', 'stopped')) +
       (select count(*) from chaos_deleted_tasks
         where (unpublish_at <= now() and unpublished_at is null or purge_at <= now())
           -- not claimed, or for less than 10 s of five minutes
           and (coalesce(claimed_until, now()) <= now() or claimed_until > now() + interval '4 min 50 s'))`
	deletedSQL = `
select id, purged_at is not null, keep_published, expired,
       case when claimed_until > now() then claimed_until - $1::interval else 'epoch' end
  from chaos_deleted_tasks`
	historySQL = `
select task_id, token, stage, part, attempt, worker_id, finished_at, outcome::text, coalesce(error_class, '')
  from chaos_attempts order by finished_at`
)

// readRunData reads the data of the run, after the workers have ended.
func (h *harness) readRunData(ctx context.Context) (d *runData, err error) {
	d = &runData{
		firstFault: h.Started(), acknowledged: h.submitter.acknowledged, rolledBack: h.submitter.rolledBack,
		submissions: h.submitter.submissions, faults: h.faults, keep: h.workers.keep, deletions: h.deletions,
		tasks: make(map[store.ID]taskRow), deletedRows: make(map[store.ID]deletedRow),
	}
	if d.logs, err = h.workers.readLogs(); err != nil {
		return nil, err
	}
	return d, h.withConn(ctx, func(conn *pgx.Conn) error {
		return errors.Join(d.readTasks(ctx, conn), d.readHistory(ctx, conn))
	})
}

// readTasks reads the tasks, and those that are deleted.
func (d *runData) readTasks(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, tasksSQL)
	if err != nil {
		return err
	}
	var t taskRow
	columns := []any{&t.id, &t.request, &t.user, &t.context, &t.isCompleted, &t.isDead, &t.isUnfinished}
	if _, err := pgx.ForEachRow(rows, columns, func() error { d.tasks[t.id] = t; return nil }); err != nil {
		return err
	}
	if rows, err = conn.Query(ctx, deletedSQL, store.RemovalTime); err != nil {
		return err
	}
	var r deletedRow
	columns = []any{&r.id, &r.isPurged, &r.keepPublished, &r.isExpired, &r.claimed}
	_, err = pgx.ForEachRow(rows, columns, func() error { d.deletedRows[r.id] = r; return nil })
	return err
}

func (d *runData) readHistory(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, historySQL)
	if err != nil {
		return err
	}
	d.history, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a attemptRow, err error) {
		err = row.Scan(&a.task, &a.token, &a.stage, &a.part, &a.attempt, &a.worker, &a.finished, &a.outcome, &a.class)
		return a, err
	})
	return err
}

// overlaps reports whether the fault was present at some time between the two.
func (f *fault) overlaps(from, to time.Time) bool { return !f.from.After(to) && !f.to.Before(from) }

// is reports whether the fault is of one of the kinds.
func (f *fault) is(kinds ...faultKind) bool { return slices.Contains(kinds, f.kind) }

// isOfServer reports whether the server was away.
func (f *fault) isOfServer() bool {
	return f.is(restartServer, killServer, freezeServer, failoverKill, failoverReadOnly)
}

// hadFault reports whether a fault was present at some time between the two.
func (d *runData) hadFault(from, to time.Time, isMeant func(*fault) bool) bool {
	return slices.ContainsFunc(d.faults, func(f *fault) bool { return f.overlaps(from, to) && isMeant(f) })
}

// isOf reports whether a worker had the fault and lives on. It need not notice that its connections were reset.
func (f *fault) isOf(worker int) bool {
	return f.worker == worker && !f.is(killWorker, resetConnections)
}

// ofServerOr returns a condition for hadFault: that the server, or a worker, had the fault.
func ofServerOr(worker int) func(*fault) bool {
	return func(f *fault) bool { return f.isOfServer() || f.isOf(worker) }
}
