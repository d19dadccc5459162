package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Worker is one process that works on a pipeline.
type Worker struct {
	ID           ID
	Pipeline     string
	Host         string
	PID          int
	Version      string
	Capabilities json.RawMessage
	// Lease is how long it may be silent before its claims are anybody's.
	// Default [DefaultLease].
	Lease time.Duration
	// Place says where it runs: empty, or words that differ from boot to boot,
	// between namespaces of processes, and between processes that had one id.
	ProcessIdentity string
	Connected       bool // its session is open, as far as the database knows
	StartedAt       time.Time
	HeartbeatAt     time.Time
	HeartbeatAge    time.Duration // by the database's clock
	StoppedAt       *time.Time    // it said good-bye
	LostAt          *time.Time    // it was given up
	DrainAt         *time.Time    // it was told to end its work and stop
	Running         []Running
}

// State is what the worker does: working, draining, silent, stopped or lost. One that
// has work to end after it was told to stop is draining, whoever told it.
func (w Worker) State() string {
	switch {
	case w.LostAt != nil:
		return "lost"
	case w.StoppedAt != nil:
		return "stopped"
	case w.HeartbeatAge > Grace(w.Lease):
		return "silent"
	case w.DrainAt != nil:
		return "draining"
	}
	return "working"
}

// Running is a claim in progress, as its worker last reported it. Its JSON is for people: the
// token, which every write of the worker must show, is not in it.
type Running struct {
	Task    ID      `json:"task_id"`
	Stage   string  `json:"stage"`
	Token   ID      `json:"-"`
	Attempt int     `json:"attempt"`
	Percent float64 `json:"percent"` // 0 to 100; negative where the end is not known
	Speed   float64 `json:"speed,omitempty"`
	ETA     float64 `json:"eta_s,omitempty"` // seconds left; 0 where it is not known
	Note    string  `json:"note,omitempty"`
}

// storedRunning is [Running] as it is in the column workers.running and in events.
type storedRunning struct {
	Task    ID      `json:"task"`
	Stage   string  `json:"stage"`
	Token   ID      `json:"token"`
	Attempt int     `json:"attempt"`
	Percent float64 `json:"percent"`
	Speed   float64 `json:"speed,omitempty"`
	ETA     float64 `json:"eta_s,omitempty"`
	Note    string  `json:"note,omitempty"`
}

// DefaultLease is how long a worker may be silent.
const DefaultLease = 36 * time.Second

const registerSQL = `
/* register worker */
insert into workers (pipeline, host, pid, version, capabilities, lease, process_identity, registered_in)
values ($1, $2, $3, $4, coalesce($5::text::jsonb, '{}'), make_interval(secs => $6), $7, cuelight_database_id())
returning id`

const workerStartedSQL = `
/* record that a worker started */
insert into {{.Outbox}} (type, worker_id, data)
select 'worker_started', id, jsonb_build_object('host', host, 'pid', pid, 'version', version) from workers where id = $1`

// Register makes a worker known; only a registered worker may claim. Each
// start of a process registers anew, so that a host that comes back is never
// mistaken for the one that went. The event is a transaction of its own, which has the
// worker's name: it is ended with the worker where this process stands still in it.
func (s *Store) RegisterWorker(ctx context.Context, w Worker) (ID, error) {
	if w.Lease <= 0 {
		w.Lease = DefaultLease
	}
	var id ID
	var capabilities *string
	if len(w.Capabilities) > 0 {
		text := string(w.Capabilities)
		capabilities = &text
	}
	err := s.db.QueryRow(ctx, registerSQL, s.graph.name, w.Host, w.PID, w.Version, capabilities, w.Lease.Seconds(), w.ProcessIdentity).Scan(&id)
	if err != nil {
		return ID{}, s.explain("register worker", err)
	}
	var batch pgx.Batch
	queueLimits(ctx, &batch, id)
	batch.Queue(s.sql.workerStarted, id)
	if err := s.db.SendBatch(ctx, &batch).Close(); err != nil {
		return ID{}, s.explain("register worker", errors.Join(err, s.deregister(ctx, deregisterSilentlySQL, id)))
	}
	return id, nil
}

const limitsSQL = `
/* limits */
select set_config('lock_timeout', $1, true),
       set_config('application_name', coalesce('cuelight ' || $2::uuid, current_setting('application_name')), true),
       case when current_setting('server_version_num')::integer >= 170000
            then set_config('transaction_timeout', '30s', true) end`

// queueLimits begins a batch that does not wait for locks on whole tables, and is ended
// with the worker, see settingsSQL; of a question that locks nothing, the worker may be
// zero.
func queueLimits(ctx context.Context, batch *pgx.Batch, worker ID) {
	var of *ID
	if !worker.IsZero() {
		of = &worker
	}
	batch.Queue(limitsSQL, fmt.Sprintf("%dms", lockWait(ctx)), of)
}

// lost: which of the given claims are no longer what their token says. The history
// has the claims that a cancel or a retry took back; of a deleted task there is none.
const findLostSQL = `
/* find lost claims */
select r.token,
       t.id is null or exists (
         select from {{.Attempts}} a where a.task_id = r.id and a.token = r.token and a.outcome = 'cancelled') as cancelled
  from unnest($1::uuid[], $2::int4[], $3::uuid[]) as r (id, stage, token)
  left join {{.Tasks}} t on t.id = r.id
 where (r.token = case r.stage
       {{- range $i, $s := .Stages}} when {{$i}} then t.{{.Name}}_token{{end}} end) is not true`

// LostClaim is a claim that is no longer its worker's.
type LostClaim struct {
	Token ID
	// Cancelled: the task was cancelled, deleted, or is to be done again.
	// Otherwise the claim was given to another worker, or freed for one.
	Cancelled bool
}

// Lost is the second half of [Store.Beat] alone: which of the claims are no
// longer their worker's.
func (s *Store) FindLostClaims(ctx context.Context, claims []Claim) ([]LostClaim, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	var batch pgx.Batch
	var lost []LostClaim
	queueLimits(ctx, &batch, ID{})
	s.queueLost(&batch, claims, &lost)
	err := s.db.SendBatch(ctx, &batch).Close()
	return lost, s.explain("find lost claims", err)
}

func (s *Store) queueLost(batch *pgx.Batch, claims []Claim, lost *[]LostClaim) {
	var ids, tokens []ID
	var stages []int32
	for _, c := range claims {
		ids, stages, tokens = append(ids, c.Task), append(stages, int32(c.Stage)), append(tokens, c.Token)
	}
	batch.Queue(s.sql.lost, ids, stages, tokens).Query(func(rows pgx.Rows) (err error) {
		*lost, err = pgx.CollectRows(rows, pgx.RowToStructByPos[LostClaim])
		return err
	})
}

const findHeldSQL = `
/* find held claims */
select t.id, held.stage, held.token, held.attempt, t.source, t.params, coalesce(t.user_id, ''), coalesce(t.traceparent, '')
  from {{.Tasks}} t
 cross join lateral (values
       {{- range $i, $s := .Stages}}{{if $i}},{{end}}
       ({{$i}}, t.{{.Name}}_token, t.{{.Name}}_attempts, t.{{.Name}}_locked_by){{end}}
       ) as held (stage, token, attempt, locked_by)
 where ({{.Any "t." "inprogress"}})
   and held.locked_by = $1`

// Held lists the claims that are a worker's as the database sees it. After an
// error of [Store.Turn] there may be some that the worker never heard of.
func (s *Store) FindHeldClaims(ctx context.Context, worker ID) ([]Claim, error) {
	var batch pgx.Batch
	var claims []Claim
	queueLimits(ctx, &batch, worker)
	batch.Queue(s.sql.held, worker).Query(func(rows pgx.Rows) (err error) {
		claims, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Claim, err error) {
			err = row.Scan(&c.Task, &c.Stage, &c.Token, &c.Attempt, &c.Source, &c.Params, &c.UserID, &c.Traceparent)
			return c, err
		})
		return err
	})
	err := s.db.SendBatch(ctx, &batch).Close()
	return claims, s.explain("find held claims", err)
}

const findRecordedSQL = `
/* find settled claims */
select a.token
  from unnest($1::uuid[], $2::uuid[], $3::text[]) as r (id, token, outcome)
  join {{.Attempts}} a on a.task_id = r.id and a.token = r.token and a.outcome::text = r.outcome`

// Settled tells which of the reports are in the history already, by their
// tokens. It answers the question that an error of [Store.Turn] leaves open:
// whether its transaction was committed all the same.
func (s *Store) FindRecordedOutcomes(ctx context.Context, reports []Report) (map[ID]bool, error) {
	var ids, tokens []ID
	var outcomes []string
	for _, r := range reports {
		ids, tokens, outcomes = append(ids, r.Task), append(tokens, r.Token), append(outcomes, string(r.Outcome))
	}
	var batch pgx.Batch
	settled := make(map[ID]bool, len(ids))
	queueLimits(ctx, &batch, ID{})
	batch.Queue(s.sql.settled, ids, tokens, outcomes).Query(func(rows pgx.Rows) error {
		var token ID
		_, err := pgx.ForEachRow(rows, []any{&token}, func() error {
			settled[token] = true
			return nil
		})
		return err
	})
	err := s.db.SendBatch(ctx, &batch).Close()
	return settled, s.explain("find settled claims", err)
}

const deregisterSQL = `
/* leave */
with stopped as (
  update workers set stopped_at = now(), running = '[]' where id = $1 and stopped_at is null
  returning id, host, pid
)
insert into {{.Outbox}} (type, worker_id, data)
select 'worker_stopped', id, jsonb_build_object('host', host, 'pid', pid) from stopped`

// leaveSilentlySQL touches the worker's row alone.
const deregisterSilentlySQL = `
/* leave silently */
update workers set stopped_at = now(), running = '[]' where id = $1 and stopped_at is null`

// leaveWithin is how long the outbox may keep a worker from leaving.
const deregisterTimeout = 3 * time.Second

// Leave says that a worker has stopped, having given back all it held. Where somebody
// has the outbox locked, no event says so: of what the worker could not hand in no
// attempt is counted once its row says that it stopped.
func (s *Store) DeregisterWorker(ctx context.Context, worker ID) error {
	within, cancel := context.WithTimeout(ctx, deregisterTimeout)
	defer cancel()
	err := s.deregister(within, s.sql.leave, worker)
	if err != nil && ctx.Err() == nil && (errors.Is(err, ErrLocked) || within.Err() != nil) {
		err = s.deregister(ctx, deregisterSilentlySQL, worker)
	}
	return err
}

func (s *Store) deregister(ctx context.Context, sql string, worker ID) error {
	var batch pgx.Batch
	queueLimits(ctx, &batch, worker)
	batch.Queue(sql, worker)
	return s.explain("leave", s.db.SendBatch(ctx, &batch).Close())
}

const expireDeadWorkersSQL = `
/* give up dead workers */
with lost as (
  update workers set lost_at = now(), running = '[]'
   where id in (select id from workers
                 where id = any($1::uuid[]) and stopped_at is null and lost_at is null
                   for no key update skip locked)
  returning id, host, pid
), told as (` + workerLostEventsSQL + `)
select id from lost`

const workerLostEventsSQL = `
  insert into {{.Outbox}} (type, worker_id, data)
  select 'worker_lost', id, jsonb_build_object('host', host, 'pid', pid) from lost
`

// GiveUp gives up workers whose processes are certainly dead, whatever their
// leases say. It returns those that had not been given up before.
func (s *Store) ExpireWorkers(ctx context.Context, workers []ID) (lost []ID, err error) {
	if len(workers) == 0 {
		return nil, nil
	}
	var batch pgx.Batch
	queueLimits(ctx, &batch, workers[0]) // whose transactions are to end, too
	batch.Queue(s.sql.giveUp, workers).Query(func(rows pgx.Rows) (err error) {
		lost, err = pgx.CollectRows(rows, pgx.RowTo[ID])
		return err
	})
	err = s.db.SendBatch(ctx, &batch).Close()
	return lost, s.explain("give up workers", err)
}

const workerColumns = `
id, pipeline, host, pid, version, capabilities, extract(epoch from lease)::float8, process_identity,
       stopped_at is null and lost_at is null and ` + connectedSQL + `, started_at, heartbeat_at,
       extract(epoch from now() - heartbeat_at)::float8, stopped_at, lost_at, drain_at, running`

const workersSQL = `
/* list workers */
select ` + workerColumns + `
  from workers w
 where pipeline = $1 and ($2 or (stopped_at is null and lost_at is null))
 order by id`

// Workers lists the processes that work on the pipeline; with all set, those
// that no longer do, too. Of these there may be very many: see [Store.GoneWorkers].
func (s *Store) Workers(ctx context.Context, all bool) ([]Worker, error) {
	rows, err := s.db.Query(ctx, workersSQL, s.graph.name, all)
	if err != nil {
		return nil, s.explain("list workers", err)
	}
	workers, err := pgx.CollectRows(rows, scanWorker)
	return workers, s.explain("list workers", err)
}

// goneWorkers: along the primary key. Most workers are gone, so few are passed over.
const goneWorkersSQL = `
/* list gone workers */
select ` + workerColumns + `
  from workers w
 where pipeline = $1 and (stopped_at is not null or lost_at is not null)
   and id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by id desc
 limit $3`

// GoneWorkers lists processes that worked on the pipeline and no longer do, the
// newest first: at most limit, by default 100, that registered before another. The
// next page is that before the last one.
func (s *Store) GoneWorkers(ctx context.Context, before ID, limit int) ([]Worker, error) {
	rows, err := s.db.Query(ctx, goneWorkersSQL, s.graph.name, before, cmp.Or(max(limit, 0), 100))
	if err != nil {
		return nil, s.explain("list gone workers", err)
	}
	workers, err := pgx.CollectRows(rows, scanWorker)
	return workers, s.explain("list gone workers", err)
}

func scanWorker(row pgx.CollectableRow) (w Worker, err error) {
	var lease, age float64
	var running []storedRunning
	err = row.Scan(&w.ID, &w.Pipeline, &w.Host, &w.PID, &w.Version, &w.Capabilities, &lease, &w.ProcessIdentity,
		&w.Connected, &w.StartedAt, &w.HeartbeatAt, &age, &w.StoppedAt, &w.LostAt, &w.DrainAt, &running)
	for _, d := range running {
		w.Running = append(w.Running, Running(d))
	}
	w.Lease, w.HeartbeatAge = time.Duration(lease*float64(time.Second)), time.Duration(age*float64(time.Second))
	return w, err
}
