package cuelight

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/system"
)

// finishedSQL creates $tasks finished tasks, each with one attempt of each stage in its history,
// as a run without failures leaves them: ids in the order of their time, one a millisecond,
// the last one a minute ago; no steps; no results, as of stages that do
// nothing. A run would take as long as all other measurements together. It also leaves the
// space of old row versions, which later rows use.
const finishedSQL = `
with worker as (
  insert into workers (name, host, pid, stopped_at) values ('bench', 'bench', 1, now()) returning id
), made as (
  select i, now() - interval '1 minute' - ($tasks::bigint - i) * interval '1 millisecond' as at
    from generate_series(1, $tasks::bigint) i
), finished as (
  insert into tasks (id, created_at, updated_at, source,
                     ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
  select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7000'
          || right(replace(gen_random_uuid()::text, '-', ''), 16))::uuid,
         at, at, i::text, 'completed', 'completed', 'completed', 'completed', 'completed'
    from made
  returning id, created_at
)
insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome)
select finished.id, gen_random_uuid(), stage, 1, worker.id,
       created_at + n * interval '1 ms', created_at + (n + 1) * interval '1 ms', 'completed'
  from finished cross join worker
 cross join unnest(array['ingest', 'transcode', 'metadata', 'assemble', 'publish']) with ordinality as s (stage, n)`

// AddFinishedTasks creates n finished tasks with the triggers off, and the checks of foreign keys where the role may: nothing
// needs to be notified or done. Then it vacuums and analyzes, as autovacuum would have done by then.
func AddFinishedTasks(ctx context.Context, url string, n int) error {
	err := system.WithConn(ctx, url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "begin; alter table tasks disable trigger user;"+withoutChecksSQL+
			strings.ReplaceAll(finishedSQL, "$tasks", strconv.Itoa(n))+"; alter table tasks enable trigger user; commit")
		if err == nil {
			_, err = conn.Exec(ctx, "vacuum analyze tasks, attempts, workers")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("create finished tasks: %w", err)
	}
	return nil
}

const withoutChecksSQL = `
select set_config('session_replication_role', 'replica', true) from pg_roles where rolname = current_user and rolsuper;`
