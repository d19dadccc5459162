package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Sweep is what the slow pass needs to know.
type Sweep struct {
	// Worker is who makes it. It is not given up.
	Worker ID
	// GoneAfter is how long a worker may be silent before it is given up; 0 for
	// giving up nobody. Whoever has lost touch with the database has to be
	// sure first that the others could have beaten for as long.
	GoneAfter time.Duration
	// MaxAttempts is, by stage, how often it is tried: a claim whose worker
	// went away counts as an attempt, so that a task which kills its workers
	// ends dead.
	MaxAttempts []int
	// Only are the tasks whose claims may lapse; nil for all.
	Only []ID
}

// Swept is what the slow pass found.
type Swept struct {
	Lost    []ID // workers given up
	Expired int  // claims taken from workers that were given up, or stopped
	// Left and Next are those of [Turned], for all stages.
	Left []bool
	Next []time.Duration
}

// lose gives up the workers that have been silent too long. Whoever is found
// silent and beats in between waits for the row and is judged again.
const loseSQL = `
/* give up workers */
update workers set lost_at = now(), running = '[]'
 where pipeline = $1 and stopped_at is null and lost_at is null
   and id is distinct from $2 and beat_at < now() - make_interval(secs => $3)
returning id`

// lapse: what was held by a worker that stopped or was given up is free
// again, or dead when it has been tried often enough. Rows are chosen first
// and locked by their tokens then: a claim that was freed and taken anew in
// between is another one.
const lapseSQL = `
/* lapse {{.Stage.Name}} */
with gone as materialized (
  select t.id, t.{{.Stage.Name}}_token as token,
         case when w.id is null then 'its worker went away'
              else format('its worker, process %s on %s, went away', w.pid, w.host) end as error
    from {{.Tasks}} t
    left join workers w on w.id = t.{{.Stage.Name}}_locked_by
   where ({{.Any "t." "inprogress"}})
     and t.{{.Stage.Name}}_status = 'inprogress'
     and (w.id is null or w.stopped_at is not null or w.lost_at is not null)
     and ($2::uuid[] is null or t.id = any($2))
), lapsed as materialized (
  select t.id, gone.token, gone.error, t.{{.Stage.Name}}_attempts as attempt,
         t.{{.Stage.Name}}_locked_by as locked_by, t.{{.Stage.Name}}_locked_at as locked_at
    from gone
    join {{.Tasks}} t on t.id = gone.id and t.{{.Stage.Name}}_token = gone.token
     for no key update of t skip locked
), moved as (
  update {{.Tasks}} t set
         {{.Stage.Name}}_status    = case when lapsed.attempt >= $1 then 'dead' else 'failed' end::cuelight_status,
         {{.Stage.Name}}_token     = null,
         {{.Stage.Name}}_locked_at = null,
         {{.Stage.Name}}_locked_by = null
    from lapsed
   where t.id = lapsed.id and t.{{.Stage.Name}}_token = lapsed.token
)
insert into {{.Attempts}} (task_id, token, stage, attempt, worker_id, started_at, outcome, retry_at, error_class, error)
select id, token, '{{.Stage.Name}}', attempt, locked_by, locked_at, 'expired',
       case when attempt < $1 then now() end, 'expired', error
  from lapsed`

// Sweep is the slow pass, one transaction: it gives up workers that are
// silent, frees what they held, makes ready what waited for a time that has
// come, and looks for anything that is ready although nobody was told.
func (s *Store) Sweep(ctx context.Context, in Sweep) (Swept, error) {
	stages := len(s.graph.nodes)
	out := Swept{Left: make([]bool, stages), Next: never(stages)}
	var batch pgx.Batch
	batch.Queue(settingsSQL, false)
	if in.GoneAfter > 0 {
		batch.Queue(loseSQL, s.graph.name, in.Worker, in.GoneAfter.Seconds()).Query(func(rows pgx.Rows) (err error) {
			out.Lost, err = pgx.CollectRows(rows, pgx.RowTo[ID])
			return err
		})
	}
	// To look and to claim nothing is a turn without free slots.
	look := turn{
		store: s, free: make([]int, stages),
		in:  Turn{Look: make([]bool, stages), Mature: make([]bool, stages), Only: in.Only},
		out: Turned{Left: out.Left, Next: out.Next},
	}
	for i := range stages {
		batch.Queue(s.sql.lapse[i], in.MaxAttempts[i], in.Only).Exec(func(tag pgconn.CommandTag) error {
			out.Expired += int(tag.RowsAffected())
			return nil
		})
		look.in.Look[i], look.in.Mature[i] = true, true
		look.queueLook(i)
	}
	batch.QueuedQueries = append(batch.QueuedQueries, look.batch.QueuedQueries...)
	err := s.db.SendBatch(ctx, &batch).Close()
	return out, s.explain("sweep", err)
}
