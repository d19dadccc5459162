package report

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// TableSizes are the bytes of a pipeline's tables with their indexes. Tables of operators are counted for each
// pipeline.
type TableSizes struct {
	Tasks        int64 `json:"tasks_bytes"` // with their steps
	History      int64 `json:"history_bytes"`
	Events       int64 `json:"events_bytes"`
	DeletedTasks int64 `json:"deleted_tasks_bytes"`
	Deliveries   int64 `json:"deliveries_bytes"`
	Other        int64 `json:"other_bytes"`
}

// tableSizesSQL reads those of the pipeline's schema. $1 is the prefix of the pipeline's tables.
const tableSizesSQL = `
/* sizes of tables */
select coalesce(sum(size) filter (where name in ('tasks', 'steps', 'positions')), 0)::bigint,
       coalesce(sum(size) filter (where name = 'attempts'), 0)::bigint,
       coalesce(sum(size) filter (where name = 'outbox'), 0)::bigint,
       coalesce(sum(size) filter (where name = 'deleted_tasks'), 0)::bigint,
       coalesce(sum(size) filter (where relname = 'cuelight_deliveries'), 0)::bigint,
       coalesce(sum(size) filter (where name in ('workers', 'pauses', 'audit', 'pipeline', 'event_epoch')
         or relname in ('cuelight_keys', 'cuelight_leases', 'cuelight_locations', 'cuelight_profiles',
                        'cuelight_webhooks', 'cuelight_alert_cooldowns')), 0)::bigint
  from (select relname, case when starts_with(relname, $1) then substr(relname, length($1) + 1) end as name,
               pg_total_relation_size(oid) as size
          from pg_class
         where relkind = 'r'
           and relnamespace = (select relnamespace from pg_class where oid = '{tasks}'::regclass)) as c`

// ReadTableSizes reads the sizes of the tables.
func ReadTableSizes(ctx context.Context, st *store.Store) (s TableSizes, err error) {
	g := st.Graph()
	err = st.DB().QueryRow(ctx, g.SQL(tableSizesSQL), g.TablePrefix()).Scan(
		&s.Tasks, &s.History, &s.Events, &s.DeletedTasks, &s.Deliveries, &s.Other)
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
		{"{outbox}", "r.at < a.before", &r.Events},
		{"{deleted_tasks}", "r.deleted_at < a.before and r.purged_at is null and r.purge_at is null", &r.Deleted},
		{"{workers}", "coalesce(r.stopped_at, r.lost_at) < a.before", &r.Workers},
		{"cuelight_audit", "r.at < a.before", &r.Audit},
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
   and exists (select from cuelight_webhooks w where w.id = r.webhook_id and w.pipeline = '{name}')`

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
	percent, err := samplePercent(ctx, st, st.Graph().SQL(table))
	if err != nil {
		return nil, err
	}
	seconds := make([]float64, len(ages))
	for i, age := range ages {
		seconds[i] = age.Seconds()
	}
	sql := st.Graph().SQL("with sampled as materialized (select * from " + table + " tablesample system ($1))\n" +
		fmt.Sprintf(countOldSQL, where))
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
