package metrics

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/report"
)

// Figures describe a pipeline, as the database shows it to all processes.
type Figures struct {
	At     time.Time     // time of the query, by this process's clock
	Took   time.Duration // duration of the query
	Stages []StageFigures

	// DeadTasks is the number of tasks with a dead stage.
	DeadTasks int

	// Workers are the worker processes that have neither stopped nor expired.
	Workers []WorkerFigures

	// OutboxPending is the number of outbox rows that the slowest enabled webhook
	// has not processed, and OutboxOldest the age of the oldest of them. Both are
	// zero without an enabled webhook.
	OutboxPending int
	OutboxOldest  time.Duration

	// OutboxHeld is the age of the oldest outbox row that is not visible yet,
	// because an earlier transaction is still open. It is 0 if there is none, and
	// negative if the database cannot tell.
	OutboxHeld time.Duration
	// OutboxAge is the age of the oldest outbox row.
	OutboxAge time.Duration

	// WebhooksOn and WebhooksOff are the numbers of enabled and disabled webhooks.
	WebhooksOn, WebhooksOff int
	// WebhookPending is the number of pending deliveries to enabled webhooks,
	// WebhookOldest the age of the oldest of them, and WebhookDead the number of
	// dead ones.
	WebhookPending int
	WebhookOldest  time.Duration
	WebhookDead    int
}

// StageFigures are the figures of one stage. Each status is counted up to
// [CountAtMost]; beyond that, Ready is PostgreSQL's estimate.
type StageFigures struct {
	Name       string
	Ready      int // can be claimed now
	Scheduled  int // scheduled for a later time
	Waiting    int // waits for the time of the next attempt
	InProgress int
	Dead       int

	// OldestReady is how long the oldest ready task has been ready. The database
	// does not store that, so it is computed from the submission, the scheduled
	// time, the last retry by an operator, and the history of the stage and of
	// those before it. Of more than 200 tasks of one priority it covers the 200
	// that are claimed next; of more than 50 priorities, the lowest 50.
	OldestReady time.Duration

	Paused bool // on all hosts
}

// WorkerFigures are the figures of one process, or of several with the same host and
// process id, in containers for example.
type WorkerFigures struct {
	Worker string // host:pid
	State  string // alive, draining, or silent for longer than its lease
	Age    time.Duration
}

// The states of a worker.
const (
	workerAlive    = "alive"
	workerDraining = "draining"
	workerSilent   = "silent"
)

// CountAtMost is the limit of every count: the cost of counting must not grow with the
// length of a queue.
const CountAtMost = report.MaxCount

// figuresSettings make the planner use the indexes for this statement even without
// statistics, and end the statement when the caller no longer waits.
const figuresSettings = `
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
       set_config('statement_timeout', $1, true)`

// figuresSQL counts with the partial indexes, which contain no finished tasks. Each row
// is a figure: its kind, its stage or worker, and its value.
const figuresSQL = `
/* figures */
{{- range .Stages}}
select 'ready' as what, '{{.Name}}' as name,
       case when few.n < {{$.With}} then few.n
            else greatest(few.n, (select reltuples from pg_class
                                   where oid = to_regclass('{{$.Tasks}}_{{.Name}}_ready'))) end as n, '' as state
  from (select count(*)::float8 as n from (select from {{$.Tasks}} where {{.Ready ""}} limit {{$.With}}) as few) as few
{{- if not .Needs}}
union all
select 'scheduled', '{{.Name}}',
       (select count(*) from (select from {{$.Tasks}} where {{$.IsScheduled ""}} limit {{$.With}}) as few), ''
{{- end}}
union all
select 'oldest', '{{.Name}}', extract(epoch from now() - (
  with recursive levels (priority) as (
    (select priority from {{$.Tasks}} where {{.Ready ""}} order by priority, id desc limit 1)
    union all
    select (select t.priority from {{$.Tasks}} t where {{.Ready "t."}} and t.priority > l.priority
             order by t.priority, t.id desc limit 1)
      from levels l where l.priority is not null
  )
  select min(since.at)
    from (select next.*
            from (select priority from levels where priority is not null limit 50) as l
           cross join lateral (select t.id, t.created_at, t.ready_at from {{$.Tasks}} t
                                where {{.Ready "t."}} and t.priority = l.priority order by t.id limit 200) as next
           limit 1000) as t
   cross join lateral (select greatest(t.created_at, t.ready_at, max(greatest(a.finished_at, a.retry_at))) as at
                         from {{$.Attempts}} a
                        where a.task_id = t.id
                          and a.stage in ('{{.Name}}'{{range .Needs}}, '{{.}}'{{end}})) as since)), ''
union all
{{end -}}
select 'inprogress', k.name, count(*) filter (where k.status = 'inprogress'), ''
  from (select * from {{.Tasks}} where {{.Any "" "inprogress"}} limit {{.With}}) as t
 cross join lateral (values {{range $i, $s := .Stages}}{{if $i}}, {{end}}
       ('{{.Name}}', t.{{.Name}}_status){{end}}) as k (name, status)
 group by k.name
union all
select 'waiting', k.name, count(k.run_at), ''
  from (
  {{- range $i, $retrying := .Retrying ""}}{{if $i}} union all
        {{end}}(select * from {{$.Tasks}} where {{$retrying}} limit {{$.With}}){{end}}) as t
 cross join lateral (values {{range $i, $s := .Stages}}{{if $i}}, {{end}}
       ('{{.Name}}', t.{{.Name}}_run_at){{end}}) as k (name, run_at)
 group by k.name
union all
select 'dead', k.name, count(*) filter (where k.status = 'dead'), ''
  from (select * from {{.Tasks}} where ({{.Any "" "dead"}}) and overridden_by is null limit {{.With}}) as t
 cross join lateral (values {{range .Stages}}('{{.Name}}', t.{{.Name}}_status), {{end}}
       ('', 'dead'::cuelight_status)) as k (name, status)
 group by k.name
union all
select 'paused', stage, 1, '' from cuelight_pauses where pipeline = '{{.Name}}' and host = ''
union all
select 'worker', worker, age, state
  from (select distinct on (worker) worker, age, state
          from (select host || ':' || pid as worker, extract(epoch from now() - heartbeat_at) as age,
                       case when now() - heartbeat_at > lease then '` + workerSilent + `'
                            when drain_at is not null then '` + workerDraining + `'
                            else '` + workerAlive + `' end as state
                  from workers where pipeline = '{{.Name}}' and stopped_at is null and lost_at is null) as w
         order by worker, age desc) as each
union all
select k.what, '', k.n, ''
  from (select min(cursor) >> 16 as seen from cuelight_webhooks
         where pipeline = '{{.Name}}' and disabled_at is null) as c
 cross join lateral (values
       ('outbox_pending',
        (select count(*) from (select from {{.Outbox}} where id > c.seen limit {{.With}}) as few)::float8),
       ('outbox_oldest',
        (select extract(epoch from now() - at) from {{.Outbox}} where id > c.seen order by id limit 1))) as k (what, n)
union all
select 'outbox_age', '', (select extract(epoch from now() - at) from {{.Outbox}} order by id limit 1), ''
union all
select 'outbox_held', '',
       case when c.place is null then -1
            else coalesce((select extract(epoch from clock_timestamp() - at) from {{.Outbox}}
                            where id > c.place order by id limit 1), 0) end, ''
  from (select case when current_setting('transaction_isolation') like 'read %' and not pg_is_in_recovery()
                    then cuelight_event_watermark('{{.Outbox}}_id') end as place offset 0) as c
union all
select k.what, '', k.n, ''
  from (select count(*) filter (where w.disabled_at is null)::float8 as on,
               count(*) filter (where w.disabled_at is not null)::float8 as off,
               sum(p.pending)::float8 as pending, max(p.oldest) as oldest, sum(d.dead)::float8 as dead
          from cuelight_webhooks w
         left join lateral (
               select count(*) as pending, extract(epoch from now() - min(created_at))::float8 as oldest
                 from (select created_at from cuelight_deliveries
                        where webhook_id = w.id and status = 'pending'
                        order by run_at, event_id limit {{.With}}) as few) as p on w.disabled_at is null
         left join lateral (
               select count(*) as dead
                 from (select from cuelight_deliveries
                        where webhook_id = w.id and status = 'dead'
                        order by id limit {{.With}}) as few) as d on w.disabled_at is null
         where w.pipeline = '{{.Name}}') as w
 cross join lateral (values ('webhooks_on', w.on), ('webhooks_off', w.off), ('webhook_pending', w.pending),
                            ('webhook_oldest', w.oldest), ('webhook_dead', w.dead)) as k (what, n)`

// scan reads the rows of the statement.
func (f *Figures) scan(rows pgx.Rows) error {
	byName := make(map[string]*StageFigures)
	for i := range f.Stages {
		byName[f.Stages[i].Name] = &f.Stages[i]
	}
	var what, name, state string
	var value *float64
	_, err := pgx.ForEachRow(rows, []any{&what, &name, &value, &state}, func() error {
		if value == nil {
			return nil // there is no oldest one
		}
		switch {
		case what == "worker":
			f.Workers = append(f.Workers, WorkerFigures{Worker: name, State: state, Age: seconds(*value)})
		case what == "paused" && name == "":
			for i := range f.Stages {
				f.Stages[i].Paused = true
			}
		case byName[name] != nil:
			byName[name].set(what, *value)
		default:
			f.set(what, *value)
		}
		return nil
	})
	return err
}

func (s *StageFigures) set(what string, value float64) {
	switch what {
	case "ready":
		s.Ready = int(value)
	case "scheduled":
		s.Scheduled = int(value)
	case "waiting":
		s.Waiting = int(value)
	case "inprogress":
		s.InProgress = int(value)
	case "dead":
		s.Dead = int(value)
	case "oldest":
		s.OldestReady = seconds(value)
	case "paused":
		s.Paused = true
	}
}

func (f *Figures) set(what string, value float64) {
	switch what {
	case "dead":
		f.DeadTasks = int(value)
	case "outbox_pending":
		f.OutboxPending = int(value)
	case "outbox_oldest":
		f.OutboxOldest = seconds(value)
	case "outbox_age":
		f.OutboxAge = seconds(value)
	case "outbox_held":
		if f.OutboxHeld = seconds(value); value < 0 {
			f.OutboxHeld = -1
		}
	case "webhooks_on":
		f.WebhooksOn = int(value)
	case "webhooks_off":
		f.WebhooksOff = int(value)
	case "webhook_pending":
		f.WebhookPending = int(value)
	case "webhook_oldest":
		f.WebhookOldest = seconds(value)
	case "webhook_dead":
		f.WebhookDead = int(value)
	}
}

// seconds is a duration; differences between clocks do not make it negative.
func seconds(s float64) time.Duration { return max(time.Duration(s*float64(time.Second)), 0) }
