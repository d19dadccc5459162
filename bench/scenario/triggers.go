package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/system"
)

// bulkChanges change many tasks with one statement each, in the order in which they run: as operators write them, or, in an
// exchange, as a worker does that reports completed stages.
var bulkChanges = []struct{ name, exchange, sql string }{
	{"import", "", `
insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
select 'bench', 'completed', 'completed', 'completed', 'completed', 'completed' from generate_series(1, $tasks)`},
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

// TriggerCost measures the time of Cuelight's triggers when one statement changes so many tasks, per task, with PostgreSQL's
// jit on as by default: "bulk". It measures every change, and records the slowest again. It rolls everything back.
func TriggerCost(tasks int) Scenario {
	return Scenario{Names: []string{"bulk"}, Measure: func(ctx context.Context, t *Trial) error {
		slowest := 0.0
		err := system.WithConn(ctx, t.URL, func(conn *pgx.Conn) error { // closing it rolls back
			tx, err := conn.Begin(ctx)
			if err != nil {
				return err
			}
			for _, c := range bulkChanges {
				_, err := tx.Exec(ctx, `select set_config('jit', 'on', true), set_config('cuelight.exchange', $1, true)`, c.exchange)
				var ms float64
				if err == nil {
					ms, err = triggerTime(ctx, tx, strings.ReplaceAll(c.sql, "$tasks", fmt.Sprint(tasks)))
				}
				if err != nil {
					return fmt.Errorf("bulk %s: %w", c.name, err)
				}
				t.RecordValue("bulk", c.name, "ms", ms/float64(tasks))
				slowest = max(slowest, ms/float64(tasks))
			}
			return nil
		})
		if err != nil {
			return err
		}
		t.RecordValue("bulk", "slowest", "ms", slowest)
		return nil
	}}
}

// triggerTime runs a statement and returns how long Cuelight's triggers took, in ms.
func triggerTime(ctx context.Context, tx pgx.Tx, sql string) (total float64, err error) {
	var plans []struct {
		Triggers []struct {
			Name string  `json:"Trigger Name"`
			Time float64 `json:"Time"`
		}
	}
	var plan []byte
	if err := tx.QueryRow(ctx, `explain (analyze, format json) `+sql).Scan(&plan); err != nil {
		return 0, err
	}
	if err := json.Unmarshal(plan, &plans); err != nil {
		return 0, err
	}
	for _, trigger := range plans[0].Triggers {
		if strings.HasPrefix(trigger.Name, "tasks_") || strings.HasPrefix(trigger.Name, "steps_") {
			total += trigger.Time
		}
	}
	return total, nil
}
