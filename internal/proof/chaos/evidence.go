package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// evidence is everything that the judge looks at: the database's word, the
// journals, and what we know ourselves.
type evidence struct {
	calm         time.Time // until then nothing was broken
	acknowledged map[string]store.ID
	undone       []string
	tasks        map[store.ID]taskRow
	history      []attemptRow
	lives        []testimony
	faults       []fault
}

// taskRow is a task as the database has it at the end.
type taskRow struct {
	id        store.ID
	request   string
	completed bool // all stages are
	dead      bool // a stage is
	open      bool // something is to be done, or being done
}

// attemptRow is a line of the history.
type attemptRow struct {
	task     store.ID
	token    store.ID
	stage    string
	attempt  int
	worker   store.ID
	finished time.Time
	outcome  string
	class    string
}

// testimony is the journal of one process.
type testimony struct {
	worker  int
	began   time.Time
	ended   time.Time
	killed  time.Time // zero if it was not
	entries []entry
}

// These statements ask the tables themselves, and not through the package that
// is being tested.
const (
	endedColumns = `
       'completed' = all(all_stages) as completed, 'dead' = any(all_stages) as dead,
       'inprogress' = any(all_stages)
         or ingest_status in ('pending', 'failed')
         or ingest_status = 'completed' and (transcode_status in ('pending', 'failed') or metadata_status in ('pending', 'failed'))
         or transcode_status = 'completed' and metadata_status = 'completed' and assemble_status in ('pending', 'failed')
         or assemble_status = 'completed' and publish_status in ('pending', 'failed') as open
  from chaos_tasks
 cross join lateral (select array[ingest_status, transcode_status, metadata_status, assemble_status, publish_status]) as s (all_stages)`

	tasksSQL   = `select id, coalesce(request_id, ''), ` + endedColumns
	openSQL    = `select count(*) from (select ` + endedColumns + `) as t where open`
	historyRow = `select task_id, token, stage, attempt, worker_id, finished_at, outcome::text, coalesce(error_class, '')
  from chaos_attempts order by finished_at`
)

func (t *theatre) evidence(ctx context.Context, calm time.Time) (*evidence, error) {
	e := &evidence{
		calm: calm, acknowledged: t.load.acknowledged, undone: t.load.undone,
		tasks: make(map[store.ID]taskRow), faults: t.faults.list(),
	}
	for _, l := range t.crew.lives() {
		entries, err := readJournal(l.journal)
		if err != nil {
			return nil, err
		}
		e.lives = append(e.lives, testimony{l.worker, l.began, l.ended, l.killed, entries})
	}
	return e, t.session(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, tasksSQL)
		if err != nil {
			return err
		}
		var r taskRow
		if _, err := pgx.ForEachRow(rows, []any{&r.id, &r.request, &r.completed, &r.dead, &r.open}, func() error {
			e.tasks[r.id] = r
			return nil
		}); err != nil {
			return err
		}
		if rows, err = conn.Query(ctx, historyRow); err != nil {
			return err
		}
		e.history, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (a attemptRow, err error) {
			err = row.Scan(&a.task, &a.token, &a.stage, &a.attempt, &a.worker, &a.finished, &a.outcome, &a.class)
			return a, err
		})
		return err
	})
}
