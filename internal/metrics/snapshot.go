package metrics

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/report"
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
			help: "Tasks, and parts of divided ones, by stage and state: ready to be claimed, scheduled for a later time, " +
				"retrying at a later time, inprogress or dead (tasks only). Counted up to 10000."},
		{name: "backlog", labels: []labelValues{stage},
			help: "Tasks and parts that workers of a stage could work on now: ready or due, unless it is paused on all hosts, or in " +
				"progress; for autoscalers. Of ready and of due ones up to 10000 are counted."},
		{name: "oldest_ready_seconds", labels: []labelValues{stage},
			help: "How long the oldest ready task or part has been ready for a stage; 0 if none is."},
		{name: "stage_paused", labels: []labelValues{stage},
			help: "1 while a stage is paused on all hosts, otherwise 0."},
		{name: "dead_tasks",
			help: "Tasks with a dead stage; nothing happens to them until an operator retries them. Counted up to 10000."},
		{name: "workers", labels: []labelValues{workerState},
			help: "Worker processes by state: busy, idle, draining, or silent because they miss heartbeats."},
		{name: "worker_heartbeat_age_seconds", labels: []labelValues{{name: "worker"}},
			help: "Time since the last heartbeat of each worker (name:pid) that has not expired."},
		{name: "outbox_pending",
			help: "Rows of events that the slowest enabled webhook has not processed. Counted up to 10000."},
		{name: "outbox_oldest_seconds",
			help: "Age of the oldest event that the slowest enabled webhook has not processed; 0 if there is none."},
		{name: "outbox_held_seconds", noDefault: true, // without a value, the database cannot tell
			help: "Age of the oldest event that is not visible yet, because an earlier transaction is still open; " +
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

// addStats adds the values of queues.
func (s *snapshot) addStats(stats report.Stats) {
	for _, st := range stats.Stages {
		for status, n := range map[string]int{
			"ready": st.Ready, "scheduled": st.Scheduled, "retrying": st.Retrying, "inprogress": st.Running, "dead": st.Dead,
		} {
			s.values[series{"tasks", [2]string{st.Stage, status}}] = float64(n)
		}
		s.values[series{"oldest_ready_seconds", [2]string{st.Stage}}] = st.OldestReady.Seconds()
	}
	s.values[series{metric: "dead_tasks"}] = float64(stats.Dead)
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

// snapshotSQL has a row per value of the metrics that are not of queues: the name, the labels in the order of
// databaseMetrics, and the value, which is null if there is nothing to measure. $1 is the stages, $2 the highest
// number that is counted.
const snapshotSQL = `
/* snapshot */
select 'backlog' as metric, stage as label1, '' as label2, cuelight_{name}_backlog(stage) as value
  from unnest($1::text[]) as stage
 union all
select 'stage_paused', s.stage, '', 1
  from {pauses} p
  join unnest($1::text[]) as s (stage) on p.stage in ('', s.stage)
 where p.host = ''
 union all
select k.metric, k.label, '', sum(k.value)
  from (select distinct on (worker) worker, age, state
          from (select name || ':' || pid as worker, extract(epoch from now() - heartbeat_at) as age,
                       case when now() - heartbeat_at > cuelight_grace(lease) then 'silent'
                            when drain_at is not null then 'draining'
                            when running <> '[]' then 'busy'
                            else 'idle' end as state
                  from {workers} where stopped_at is null and lost_at is null) as w
         order by worker, age desc) as each
 cross join lateral (values ('worker_heartbeat_age_seconds', worker, age), ('workers', state, 1)) as k (metric, label, value)
 group by k.metric, k.label
 union all
select k.metric, '', '', k.value
  from (select min(cursor) >> 16 as seen from cuelight_webhooks where pipeline = '{name}' and disabled_at is null) as c
 cross join lateral (
       select least(count(*), $2)::float8 as n, extract(epoch from now() - min(at))::float8 as age
         from ((select at from {outbox} where id > c.seen order by id limit $2)
                union all
               (select finished_at from {attempts} where event_id > c.seen order by event_id limit $2)) as rows) as p
 cross join lateral (values ('outbox_pending', p.n), ('outbox_oldest_seconds', p.age)) as k (metric, value)
 union all
select 'outbox_age_seconds', '', '', (select extract(epoch from now() - at) from {outbox} order by id limit 1)
 union all
select 'outbox_held_seconds', '', '',
       case when c.watermark is not null
            then coalesce(extract(epoch from clock_timestamp() - least(
              (select at from {outbox} where id > c.watermark order by id limit 1),
              (select finished_at from {attempts} where event_id > c.watermark order by event_id limit 1))), 0) end
  from (select case when current_setting('transaction_isolation') like 'read %' and not pg_is_in_recovery()
                    then cuelight_{name}_event_watermark() end as watermark offset 0) as c
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
                        order by run_at, event_id limit $2) as few) as p on w.disabled_at is null
         left join lateral (
               select count(*) as dead
                 from (select from cuelight_deliveries
                        where webhook_id = w.id and status = 'dead'
                        order by id limit $2) as few) as d on w.disabled_at is null
         where w.pipeline = '{name}') as w
 cross join lateral (values ('webhooks', 'enabled', w.enabled), ('webhooks', 'disabled', w.disabled),
                            ('webhook_pending', '', w.pending),
                            ('webhook_oldest_seconds', '', w.oldest), ('webhook_dead', '', w.dead)) as k (metric, label, value)`
