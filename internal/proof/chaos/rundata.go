package main

import (
	"context"
	"slices"
	"sync"
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
	faults       []fault
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
	isUnfinished bool   // a stage is in progress or divided, or can be claimed now or later
}

// attemptRow is a row of the history.
type attemptRow struct {
	task     store.ID
	token    store.ID
	stage    string
	part     int // 0: of the stage itself
	attempt  int
	worker   store.ID
	started  time.Time
	finished time.Time
	outcome  string
	class    string
}

// These statements read the tables directly, not through the package under test.
const (
	statusColumns = `
       'completed' = all(statuses) as completed, 'dead' = any(statuses) as dead,
       'inprogress' = any(statuses) or 'divided' = any(statuses)
         or ingest_status in ('pending', 'failed')
         or ingest_status = 'completed'
            and (transcode_status in ('pending', 'failed') or metadata_status in ('pending', 'failed'))
         or transcode_status = 'completed' and metadata_status = 'completed'
            and assemble_status in ('pending', 'failed')
         or assemble_status = 'completed' and publish_status in ('pending', 'failed') as unfinished
  from chaos_tasks
 cross join lateral (select array[
       ingest_status, transcode_status, metadata_status, assemble_status, publish_status]) as s (statuses)`

	tasksSQL = `select id, coalesce(request_id, ''), coalesce(user_id, ''), coalesce(user_context::text, ''),
       ` + statusColumns
	unfinishedSQL = `select (select count(*) from (select ` + statusColumns + `) as t where unfinished) +
       (select count(*) from chaos_deleted_tasks
         where (unpublish_at <= now() and unpublished_at is null or purge_at <= now())
           -- not claimed, or for less than 10 s of five minutes
           and (coalesce(claimed_until, now()) <= now() or claimed_until > now() + interval '4 min 50 s'))`
	deletedSQL = `
select id, purged_at is not null, keep_published, expired, case when claimed_until > now() then claimed_until end from chaos_deleted_tasks`
	historySQL = `
select task_id, token, stage, part, attempt, worker_id, started_at, finished_at, outcome::text, coalesce(error_class, '')
  from chaos_attempts order by finished_at`
)

// readRunData reads the data of the run, after the workers have ended.
func (h *harness) readRunData(ctx context.Context, firstFault time.Time) (*runData, error) {
	d := &runData{
		firstFault: firstFault, acknowledged: h.submitter.acknowledged, rolledBack: h.submitter.rolledBack,
		submissions: h.submitter.submissions,
		tasks:       make(map[store.ID]taskRow), faults: h.faultLog.list(),
		keep:      h.workers.keep,
		deletions: h.deletions.tasks, deletedRows: make(map[store.ID]deletedRow),
	}
	var err error
	if d.logs, err = h.workers.readLogs(); err != nil {
		return nil, err
	}
	return d, h.withConn(ctx, func(conn *pgx.Conn) error {
		err := d.readTasks(ctx, conn)
		if err == nil {
			err = d.readHistory(ctx, conn)
		}
		return err
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
	if _, err := pgx.ForEachRow(rows, columns, func() error {
		d.tasks[t.id] = t
		return nil
	}); err != nil {
		return err
	}
	if rows, err = conn.Query(ctx, deletedSQL); err != nil {
		return err
	}
	var deleted deletedRow
	var claimed *time.Time
	columns = []any{&deleted.id, &deleted.isPurged, &deleted.keepPublished, &deleted.isExpired, &claimed}
	_, err = pgx.ForEachRow(rows, columns, func() error {
		if deleted.claimed = (time.Time{}); claimed != nil {
			deleted.claimed = claimed.Add(-store.RemovalTime)
		}
		d.deletedRows[deleted.id] = deleted
		return nil
	})
	return err
}

func (d *runData) readHistory(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, historySQL)
	if err != nil {
		return err
	}
	d.history, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a attemptRow, err error) {
		err = row.Scan(&a.task, &a.token, &a.stage, &a.part, &a.attempt, &a.worker, &a.started, &a.finished, &a.outcome, &a.class)
		return a, err
	})
	return err
}

// fault is a period in which something was broken.
type fault struct {
	kind   faultKind
	worker int // or noWorker
	from   time.Time
	to     time.Time  // zero: it is still broken
	tasks  []store.ID // that were locked
}

// overlaps reports whether the fault was present at some time between the two.
func (f fault) overlaps(from, to time.Time) bool {
	return !f.from.After(to) && (f.to.IsZero() || !f.to.Before(from))
}

// is reports whether the fault is of one of the kinds.
func (f fault) is(kinds ...faultKind) bool { return slices.Contains(kinds, f.kind) }

// faultLog records the faults. The rules make exceptions for them.
type faultLog struct {
	mu     sync.Mutex
	faults []*fault
}

// record notes that a fault begins now. The function that it returns notes its end.
func (l *faultLog) record(kind faultKind, worker int, tasks ...store.ID) (end func()) {
	f := &fault{kind: kind, worker: worker, from: time.Now(), tasks: tasks}
	l.mu.Lock()
	l.faults = append(l.faults, f)
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		f.to = time.Now()
	}
}

func (l *faultLog) list() []fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []fault
	for _, f := range l.faults {
		all = append(all, *f)
	}
	return all
}
