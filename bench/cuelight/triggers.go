package cuelight

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// bulkChanges change many tasks with one statement each, in the order in which they run: as operators write them, or, in an
// exchange, as a worker does that reports completed stages.
var bulkChanges = []struct{ name, exchange, sql string }{
	{"import", "", `
insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
select 'bench', 'completed', 'completed', 'completed', 'completed', 'completed' from generate_series(1, %d)`},
	{"reset", "", `
update tasks set ingest_status = 'pending', transcode_status = 'pending', metadata_status = 'pending',
                 assemble_status = 'pending', publish_status = 'pending'`},
	{"prioritize", "", `
update tasks set priority = 1`},
	{"report", "reports", `
with ended as (delete from steps) update tasks set ingest_status = 'completed'`},
	{"cancel", "", `
update tasks set transcode_status = 'cancelled', metadata_status = 'cancelled',
                 assemble_status = 'cancelled', publish_status = 'cancelled'`},
}

// triggerTimes returns, by change, how long the triggers take per task if one statement
// changes so many tasks, with PostgreSQL's jit on as by default. It rolls everything back.
func triggerTimes(ctx context.Context, url string, tasks int) (map[string]time.Duration, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) // rolls back
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	times := make(map[string]time.Duration)
	for _, c := range bulkChanges {
		sql := c.sql
		if strings.Contains(sql, "%d") {
			sql = fmt.Sprintf(sql, tasks)
		}
		_, err := tx.Exec(ctx, `select set_config('jit', 'on', true), set_config('cuelight.exchange', $1, true)`, c.exchange)
		var total time.Duration
		if err == nil {
			total, err = triggerTime(ctx, tx, sql)
		}
		if err != nil {
			return nil, fmt.Errorf("bulk %s: %w", c.name, err)
		}
		times[c.name] = total / time.Duration(tasks)
	}
	return times, nil
}

// triggerTime runs a statement and returns how long Cuelight's triggers took.
func triggerTime(ctx context.Context, tx pgx.Tx, sql string) (time.Duration, error) {
	var plans []struct {
		Triggers []struct {
			Name string  `json:"Trigger Name"`
			Time float64 `json:"Time"` // in milliseconds
		}
	}
	var plan []byte
	if err := tx.QueryRow(ctx, `explain (analyze, format json) `+sql).Scan(&plan); err != nil {
		return 0, err
	}
	if err := json.Unmarshal(plan, &plans); err != nil {
		return 0, err
	}
	total := 0.0
	for _, trigger := range plans[0].Triggers {
		if strings.HasPrefix(trigger.Name, "tasks_") || strings.HasPrefix(trigger.Name, "steps_") {
			total += trigger.Time
		}
	}
	return time.Duration(total * float64(time.Millisecond)), nil
}
