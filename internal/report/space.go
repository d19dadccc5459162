package report

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// TableSizes are the bytes of a pipeline's tables with their indexes. Tables that pipelines share are counted for each.
type TableSizes struct {
	Tasks        int64 `json:"tasks_bytes"` // with their parts
	History      int64 `json:"history_bytes"`
	Events       int64 `json:"events_bytes"`
	DeletedTasks int64 `json:"deleted_tasks_bytes"`
	Deliveries   int64 `json:"deliveries_bytes"`
	Other        int64 `json:"other_bytes"`
}

const tableSizesSQL = `
/* sizes of tables */
select case when c.oid = '{{.Tasks}}'::regclass then 'tasks'
{{- if .HasParts}}
            when c.oid = '{{.Parts}}'::regclass then 'tasks'
{{- end}}
            when c.oid = '{{.Attempts}}'::regclass then 'history'
            when c.oid = '{{.Outbox}}'::regclass then 'events'
            when c.oid = '{{.Prefix}}deleted_tasks'::regclass then 'deleted'
            when c.oid = 'cuelight_deliveries'::regclass then 'deliveries'
            else 'other' end as name,
       coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
  from pg_class c
 where c.relkind = 'r' and c.relnamespace = (select relnamespace from pg_class where oid = '{{.Tasks}}'::regclass)
   and (c.relname ~ '^cuelight_' or c.oid = 'workers'::regclass or c.oid in (
        '{{.Tasks}}'::regclass, '{{.Attempts}}'::regclass, '{{.Outbox}}'::regclass,
        '{{.Prefix}}deleted_tasks'::regclass{{if .HasParts}}, '{{.Parts}}'::regclass{{end}}))
 group by name`

// ReadTableSizes reads the sizes of the tables.
func ReadTableSizes(ctx context.Context, st *store.Store) (s TableSizes, err error) {
	rows, err := st.DB().Query(ctx, st.Graph().SQL(tableSizesSQL, nil))
	if err != nil {
		return s, statement.Wrap(st.DB(), "read sizes of tables", err)
	}
	var name string
	var bytes int64
	_, err = pgx.ForEachRow(rows, []any{&name, &bytes}, func() error {
		*map[string]*int64{
			"tasks": &s.Tasks, "history": &s.History, "events": &s.Events, "deleted": &s.DeletedTasks,
			"deliveries": &s.Deliveries, "other": &s.Other,
		}[name] = bytes
		return nil
	})
	return s, statement.Wrap(st.DB(), "read sizes of tables", err)
}

// RowCount is a number of rows.
type RowCount struct {
	Rows      int64 `json:"rows"`
	Estimated bool  `json:"estimated"`
}

// PrunableRows count the rows that each retention would delete now, for each of some ages.
type PrunableRows struct{ Finished, Dead, Events, Deleted, Workers, Audit, Deliveries, DeadDeliveries []RowCount }

const (
	// sampledBlocks is how many blocks of a table are read at most; a larger one is sampled.
	sampledBlocks = 1000
	// countedTasks is how many of the oldest tasks with a status are read.
	countedTasks = 10_000
	tasksPerRead = 500
)

// CountPrunable counts the rows that each retention would delete now, with the conditions of those that delete. Its
// cost is bounded: of a large table it estimates the number by a sample, and says so.
func CountPrunable(ctx context.Context, st *store.Store, ages []time.Duration) (r PrunableRows, err error) {
	for _, of := range []struct {
		table, where string
		counts       *[]RowCount
	}{
		{"{{.Outbox}}", "r.at < a.before", &r.Events},
		{"{{.Prefix}}deleted_tasks", "r.deleted_at < a.before and r.purged_at is null and r.purge_at is null", &r.Deleted},
		{"workers", "r.pipeline = '{{.Name}}' and coalesce(r.stopped_at, r.lost_at) < a.before", &r.Workers},
		{"cuelight_audit", "r.pipeline = '{{.Name}}' and r.at < a.before", &r.Audit},
		{"cuelight_deliveries", "r.status in ('delivered', 'suppressed')" + oldDelivery, &r.Deliveries},
		{"cuelight_deliveries", "r.status = 'dead'" + oldDelivery, &r.DeadDeliveries},
	} {
		if *of.counts, err = countOld(ctx, st, of.table, of.where, ages); err != nil {
			return r, fmt.Errorf("count rows: %w", err)
		}
	}
	r.Finished, r.Dead = make([]RowCount, len(ages)), make([]RowCount, len(ages))
	for _, status := range []store.Status{store.StatusCompleted, store.StatusCancelled, store.StatusDead} {
		if err := addTasks(ctx, st, status, ages, &r); err != nil {
			return r, fmt.Errorf("count tasks: %w", err)
		}
	}
	return r, nil
}

const oldDelivery = ` and r.finished_at < a.before
   and exists (select from cuelight_webhooks w where w.id = r.webhook_id and w.pipeline = '{{.Name}}')`

const blocksSQL = `
/* blocks of a table */
select pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint`

// samplePercent returns how much of a table is read.
func samplePercent(ctx context.Context, st *store.Store, table string) (float64, error) {
	var blocks int64
	err := st.DB().QueryRow(ctx, blocksSQL, table).Scan(&blocks)
	return min(100, 100*sampledBlocks/float64(max(blocks, 1))), statement.Wrap(st.DB(), "read size", err)
}

const countOldSQL = `
/* count old rows */
select (select count(*) from sampled r where %s)
  from unnest($2::float8[]) with ordinality as ages (seconds, number)
 cross join lateral (select now() - make_interval(secs => ages.seconds) as before) as a
 order by ages.number`

// countOld counts the rows of a table that a retention would delete, for each of the ages.
func countOld(ctx context.Context, st *store.Store, table, where string, ages []time.Duration) ([]RowCount, error) {
	percent, err := samplePercent(ctx, st, st.Graph().SQL(table, nil))
	if err != nil {
		return nil, err
	}
	seconds := make([]float64, len(ages))
	for i, age := range ages {
		seconds[i] = age.Seconds()
	}
	sql := st.Graph().SQL("with sampled as materialized (select * from "+table+" tablesample system ($1))\n"+
		fmt.Sprintf(countOldSQL, where), nil)
	rows, err := st.DB().Query(ctx, sql, percent, seconds)
	if err != nil {
		return nil, statement.Wrap(st.DB(), "sample "+table, err)
	}
	counts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c RowCount, err error) {
		err = row.Scan(&c.Rows)
		return scaled(c.Rows, percent), err
	})
	return counts, statement.Wrap(st.DB(), "sample "+table, err)
}

// scaled returns how many rows a table has, if a sample of it has so many.
func scaled(rows int64, percent float64) RowCount {
	return RowCount{Rows: int64(float64(rows)*100/percent + 0.5), Estimated: percent < 100}
}
