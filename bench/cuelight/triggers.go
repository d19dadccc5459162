package cuelight

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// bulkSQL are statements that change many tasks at once, as people write them, in the
// order in which they are run.
var bulkSQL = []struct{ name, madeBy, sql string }{
	{"import", "", `insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
	                select 'bench', 'completed', 'completed', 'completed', 'completed', 'completed' from generate_series(1, %d)`},
	{"reset", "", `update tasks set ingest_status = 'pending', transcode_status = 'pending', metadata_status = 'pending',
	               assemble_status = 'pending', publish_status = 'pending'`},
	{"claim", "", `update tasks set ingest_status = 'inprogress', ingest_attempts = 1, ingest_token = gen_random_uuid(),
	               ingest_locked_at = now(), ingest_locked_by = gen_random_uuid()`},
	{"fail", "turn", `update tasks set ingest_status = 'failed', ingest_token = null, ingest_locked_at = null, ingest_locked_by = null`},
	{"cancel", "", `update tasks set ingest_status = 'cancelled', transcode_status = 'cancelled', metadata_status = 'cancelled',
	                assemble_status = 'cancelled', publish_status = 'cancelled'`},
}

// Bulk is how long the triggers take per task, by what is done to so many tasks in one
// statement, with PostgreSQL's compiler (jit) as it comes: on. Nothing of it stays.
func (System) TriggerTimes(ctx context.Context, url string, tasks int) (map[string]time.Duration, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	taken := make(map[string]time.Duration)
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // the connection is closed
	for _, act := range bulkSQL {
		if _, err := tx.Exec(ctx, `select set_config('jit', 'on', true), set_config('cuelight.origin', $1, true)`, act.madeBy); err != nil {
			return nil, fmt.Errorf("bulk %s: %w", act.name, err)
		}
		sql := act.sql
		if strings.Contains(sql, "%d") {
			sql = fmt.Sprintf(sql, tasks)
		}
		spent, err := inTriggers(ctx, tx, sql)
		if err != nil {
			return nil, fmt.Errorf("bulk %s: %w", act.name, err)
		}
		taken[act.name] = spent / time.Duration(tasks)
	}
	return taken, nil
}

// inTriggers runs a statement and says how long Cuelight's triggers took.
func inTriggers(ctx context.Context, tx pgx.Tx, sql string) (time.Duration, error) {
	var out []byte
	if err := tx.QueryRow(ctx, `explain (analyze, format json) `+sql).Scan(&out); err != nil {
		return 0, err
	}
	var plans []struct {
		Triggers []struct {
			Name string  `json:"Trigger Name"`
			Time float64 `json:"Time"` // in milliseconds
		}
	}
	if err := json.Unmarshal(out, &plans); err != nil {
		return 0, err
	}
	spent := 0.0
	for _, trigger := range plans[0].Triggers {
		if strings.HasPrefix(trigger.Name, "tasks_") {
			spent += trigger.Time
		}
	}
	return time.Duration(spent * float64(time.Millisecond)), nil
}
