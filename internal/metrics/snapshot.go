package metrics

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// snapshot is what the database shows of a pipeline to all processes.
type snapshot struct {
	at     time.Time     // time of the query, by this process's clock
	took   time.Duration // duration of the query
	values map[series]float64
}

// series is a metric with the values of its labels.
type series struct {
	metric string
	labels [2]string // empty if the metric has fewer
}

// databaseMetric is a metric of the snapshot.
type databaseMetric struct {
	name, help string
	labels     []labelValues
	// noDefault means that a series without a value is missing. Otherwise it is 0.
	noDefault bool
}

// labelValues are a label and its values.
type labelValues struct {
	name   string
	values []string // none if they are not known in advance
}

// databaseMetrics are the metrics of a pipeline with these stages. Every count ends at
// report.MaxCount: its cost must not grow with the length of a queue.
func databaseMetrics(stages []string) []databaseMetric {
	stage := labelValues{"stage", stages}
	status := labelValues{"status", []string{"ready", "scheduled", "retrying", "inprogress", "dead"}}
	workerState := labelValues{"state", []string{"busy", "idle", "draining", "silent"}}
	webhookState := labelValues{"state", []string{"enabled", "disabled"}}
	return []databaseMetric{
		{name: "tasks", labels: []labelValues{stage, status},
			help: "Tasks by stage and its state: ready to be claimed, scheduled for a later time, retrying at a later " +
				"time, inprogress or dead. Exact up to 10000; beyond that, ready is PostgreSQL's estimate " +
				"and the others are 10000."},
		{name: "backlog", labels: []labelValues{stage},
			help: "Tasks and parts that workers of a stage could work on now: ready or due, unless it is paused on all hosts, or in " +
				"progress; for autoscalers. Of ready and of due ones up to 10000 are counted."},
		{name: "oldest_ready_seconds", labels: []labelValues{stage},
			help: "How long, about, the oldest ready task has been ready for a stage; 0 if none is."},
		{name: "stage_paused", labels: []labelValues{stage},
			help: "1 while a stage is paused on all hosts, otherwise 0."},
		{name: "dead_tasks",
			help: "Tasks with a dead stage; nothing happens to them until an operator retries them. Counted up to 10000."},
		{name: "workers", labels: []labelValues{workerState},
			help: "Worker processes by state: busy, idle, draining, or silent because they miss heartbeats."},
		{name: "worker_heartbeat_age_seconds", labels: []labelValues{{name: "worker"}},
			help: "Time since the last heartbeat of each worker (name:pid) that has not expired."},
		{name: "outbox_pending",
			help: "Outbox rows that the slowest enabled webhook has not processed. Counted up to 10000."},
		{name: "outbox_oldest_seconds",
			help: "Age of the oldest outbox row that the slowest enabled webhook has not processed; 0 if there is none."},
		{name: "outbox_held_seconds", noDefault: true, // without a value, the database cannot tell
			help: "Age of the oldest outbox row that is not visible yet, because an earlier transaction is still open; " +
				"0 if there is none."},
		{name: "outbox_age_seconds", help: "Age of the oldest outbox row; 0 if there is none."},
		{name: "webhooks", labels: []labelValues{webhookState}, help: "Webhooks by state: enabled or disabled."},
		{name: "webhook_pending", help: "Pending deliveries to enabled webhooks. Counted up to 10000 per webhook."},
		{name: "webhook_oldest_seconds", help: "Age of the oldest pending delivery; 0 if there is none."},
		{name: "webhook_dead",
			help: "Dead deliveries to enabled webhooks, until an operator retries them. Counted up to 10000 per webhook."},
	}
}

// addDefaults adds the series of the metric, with the value 0.
func (m databaseMetric) addDefaults(to map[series]float64) {
	all := []series{{metric: m.name}}
	for i, label := range m.labels {
		var longer []series
		for _, s := range all {
			for _, value := range label.values {
				s.labels[i] = value
				longer = append(longer, s)
			}
		}
		all = longer
	}
	for _, s := range all {
		if !m.noDefault {
			to[s] = 0
		}
	}
}

// scan reads the rows of snapshotSQL.
func (s *snapshot) scan(rows pgx.Rows) error {
	var row series
	var value *float64
	_, err := pgx.ForEachRow(rows, []any{&row.metric, &row.labels[0], &row.labels[1], &value}, func() error {
		if value != nil {
			s.values[row] = max(*value, 0) // differences between clocks may be negative
		}
		return nil
	})
	return err
}

// snapshotSettings make the planner use the indexes for this statement even without
// statistics, and end the statement when the caller no longer waits.
const snapshotSettings = `
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
       set_config('statement_timeout', $1, true)`

// snapshotSQL counts with the partial indexes, which contain no finished tasks. Each row
// is a value of a metric: its name, its labels in the order of databaseMetrics, and the
// value, which is null if there is nothing to measure.
//
// The database does not store since when a task is ready, so the time is computed from
// the submission, the scheduled time, the last retry by an operator, and the history of
// the stage and of those before it. Of more than 200 tasks of one priority the query
// reads the 200 that are claimed next; of more than 50 priorities, the lowest 50.
const snapshotSQL = `
/* snapshot */
{{- range .Stages}}
select 'tasks' as metric, '{{.Name}}' as label1, 'ready' as label2,
       case when few.n < {{$.With}} then few.n
            else greatest(few.n, (select reltuples from pg_class
                                   where oid = to_regclass('{{$.Tasks}}_{{.Name}}_ready'))) end as value
  from (select count(*)::float8 as n from (select from {{$.Tasks}} where {{.Ready ""}} limit {{$.With}}) as few) as few
{{- if not .Needs}}
union all
select 'tasks', '{{.Name}}', 'scheduled',
       (select count(*) from (select from {{$.Tasks}} where {{$.IsScheduled ""}} limit {{$.With}}) as few)
{{- end}}
union all
select 'backlog', '{{.Name}}', '', {{$.Function "backlog"}}('{{.Name}}')
union all
select 'oldest_ready_seconds', '{{.Name}}', '', extract(epoch from now() - (
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
                          and a.stage in ('{{.Name}}'{{range .Needs}}, '{{.}}'{{end}})) as since))
union all
{{end -}}
select 'tasks', k.name, 'inprogress', count(*) filter (where k.status = 'inprogress')
  from (select * from {{.Tasks}} where {{.Any "" "inprogress"}} limit {{.With}}) as t
 cross join lateral (values {{range $i, $s := .Stages}}{{if $i}}, {{end}}
       ('{{.Name}}', t.{{.Name}}_status){{end}}) as k (name, status)
 group by k.name
union all
select 'tasks', k.name, 'retrying', count(k.run_at)
  from (
  {{- range $i, $retrying := .Retrying ""}}{{if $i}} union all
        {{end}}(select * from {{$.Tasks}} where {{$retrying}} limit {{$.With}}){{end}}) as t
 cross join lateral (values {{range $i, $s := .Stages}}{{if $i}}, {{end}}
       ('{{.Name}}', t.{{.Name}}_run_at){{end}}) as k (name, run_at)
 group by k.name
union all
select k.metric, k.name, k.label2, count(*) filter (where k.status = 'dead')
  from (select * from {{.Tasks}} where ({{.Any "" "dead"}}) and overridden_by is null limit {{.With}}) as t
 cross join lateral (values {{range .Stages}}('tasks', '{{.Name}}', 'dead', t.{{.Name}}_status), {{end}}
       ('dead_tasks', '', '', 'dead'::cuelight_status)) as k (metric, name, label2, status)
 group by k.metric, k.name, k.label2
union all
select 'stage_paused', s.name, '', 1
  from cuelight_pauses as p
  join (values {{range $i, $s := .Stages}}{{if $i}}, {{end}}('{{.Name}}'){{end}}) as s (name) on p.stage in ('', s.name)
 where p.pipeline = '{{.Name}}' and p.host = ''
union all
select k.metric, k.label, '', sum(k.value)
  from (select distinct on (worker) worker, age, state
          from (select name || ':' || pid as worker, extract(epoch from now() - heartbeat_at) as age,
                       case when now() - heartbeat_at > {{.DisconnectGrace ""}} then 'silent'
                            when drain_at is not null then 'draining'
                            when running <> '[]' then 'busy'
                            else 'idle' end as state
                  from workers where pipeline = '{{.Name}}' and stopped_at is null and lost_at is null) as w
         order by worker, age desc) as each
 cross join lateral (values ('worker_heartbeat_age_seconds', worker, age), ('workers', state, 1)) as k (metric, label, value)
 group by k.metric, k.label
union all
select k.metric, '', '', k.value
  from (select min(cursor) >> 16 as seen from cuelight_webhooks
         where pipeline = '{{.Name}}' and disabled_at is null) as c
 cross join lateral (values
       ('outbox_pending',
        (select count(*) from (select from {{.Outbox}} where id > c.seen limit {{.With}}) as few)::float8),
       ('outbox_oldest_seconds',
        (select extract(epoch from now() - at) from {{.Outbox}} where id > c.seen order by id limit 1))) as k (metric, value)
union all
select 'outbox_age_seconds', '', '', (select extract(epoch from now() - at) from {{.Outbox}} order by id limit 1)
union all
select 'outbox_held_seconds', '', '',
       case when c.watermark is not null
            then coalesce((select extract(epoch from clock_timestamp() - at) from {{.Outbox}}
                            where id > c.watermark order by id limit 1), 0) end
  from (select case when current_setting('transaction_isolation') like 'read %' and not pg_is_in_recovery()
                    then cuelight_event_watermark('{{.Outbox}}_id') end as watermark offset 0) as c
union all
select k.metric, k.label, '', k.value
  from (select count(*) filter (where w.disabled_at is null)::float8 as enabled,
               count(*) filter (where w.disabled_at is not null)::float8 as disabled,
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
 cross join lateral (values ('webhooks', 'enabled', w.enabled), ('webhooks', 'disabled', w.disabled),
                            ('webhook_pending', '', w.pending),
                            ('webhook_oldest_seconds', '', w.oldest), ('webhook_dead', '', w.dead)) as k (metric, label, value)`
