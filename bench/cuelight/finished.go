package cuelight

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// growSQL makes $1 finished tasks, each with one attempt of each stage in its
// history, as a run leaves them in which nothing fails: ids in the order of their
// time, the last one a minute ago, one a millisecond; tokens and claims gone; no
// results, as of stages that do nothing. Making them by a run would take as long
// as the rest of the measurements together. What a run leaves beside that, the
// room of old versions of rows, is for later rows; with it the table is larger
// (see the figures of "size"), and no index is.
const growSQL = `
with worker as (
  insert into workers (pipeline, host, pid, stopped_at) values ('video', 'bench', 1, now()) returning id
), made as (
  select i, now() - interval '1 minute' - ($1::bigint - i) * interval '1 millisecond' as at from generate_series(1, $1::bigint) i
), finished as (
  insert into tasks (id, created_at, source,
                     ingest_status, transcode_status, metadata_status, assemble_status, publish_status,
                     ingest_attempts, transcode_attempts, metadata_attempts, assemble_attempts, publish_attempts)
  select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7000' || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid,
         at, i::text, 'completed', 'completed', 'completed', 'completed', 'completed', 1, 1, 1, 1, 1
    from made
  returning id, created_at
)
insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome)
select finished.id, gen_random_uuid(), stage, 1, worker.id,
       created_at + n * interval '1 ms', created_at + (n + 1) * interval '1 ms', 'completed'
  from finished cross join worker
 cross join unnest(array['ingest', 'transcode', 'metadata', 'assemble', 'publish']) with ordinality as s (stage, n)`

// Grow makes n finished tasks. Triggers are off meanwhile: there is nobody to
// be told, and nothing to be done. Then it does what autovacuum would have done
// by the time a table has so many: they are far past its thresholds, and it comes
// once a minute.
func (System) AddFinishedTasks(ctx context.Context, url string, n int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if n == 0 {
			return nil
		}
		_, err := tx.Exec(ctx, "alter table tasks disable trigger user")
		if err == nil {
			_, err = tx.Exec(ctx, growSQL, n)
		}
		if err == nil {
			_, err = tx.Exec(ctx, "alter table tasks enable trigger user")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("make finished tasks: %w", err)
	}
	if _, err := conn.Exec(ctx, "vacuum analyze tasks, attempts, workers"); err != nil {
		return fmt.Errorf("vacuum: %w", err)
	}
	return nil
}
