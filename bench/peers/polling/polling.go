// Package polling has the pipeline as it was before anything was notified: one
// row per task with a status per stage, and a loop for each stage that sleeps,
// looks for rows whose turn it is, and works on them.
//
// It is written as well as such a thing can be, so that only the sleep is
// compared: a loop claims as many rows as it has free slots, with FOR NO KEY
// UPDATE SKIP LOCKED in one statement; it has a partial index of exactly the
// rows it looks for; when it got as many as it asked for it does not sleep but
// goes on as soon as a slot is free. Loops do not sleep in step: they begin at
// random times, and each sleep is up to a quarter longer or shorter, which
// changes the mean wait by 2 %. (In step, transcode and metadata would lock each
// other's rows and skip them, round after round.)
//
// With an interval of T a task then waits T/2 on average for ingest, 2T/3 for
// the later one of transcode and metadata, and T/2 for each of assemble and
// publish: about 2.2 T in all, however idle the system is. What it costs an
// idle system is five queries every T.
//
// It has no retries, no leases, no fencing and no history, all of which Cuelight
// has and pays for: a process that dies leaves its claims behind for ever.
package polling

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
)

// Polling looks for work every so often.
type System struct {
	name     string
	interval time.Duration
}

// Every5s looks every 5 seconds, Every1s every second.
func Every5s() harness.System { return System{"polling_5s", 5 * time.Second} }

// Every1s looks every second.
func Every1s() harness.System { return System{"polling_1s", time.Second} }

// Every looks for work after each interval, and is called name.
func Every(name string, interval time.Duration) System { return System{name, interval} }

// Name is its word in results.
func (p System) Name() string { return p.name }

// Settings says how it was set up.
func (p System) Settings() string {
	return fmt.Sprintf("a loop per stage that sleeps %v ± 25 %% and claims up to its free slots with SKIP LOCKED, "+
		"again at once after a full batch; a partial index per stage, %d connections", p.interval, connections)
}

// Setup makes the table.
func (p System) Setup(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect for polling: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, schema()); err != nil {
		return fmt.Errorf("make the table for polling: %w", err)
	}
	return nil
}

// Fill inserts tasks while nobody works.
func (p System) Preload(ctx context.Context, url string, first int64, n int) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect for polling: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, submitAll, first, n); err != nil {
		return fmt.Errorf("insert tasks: %w", err)
	}
	return nil
}

// schema is the table with its indexes. Its pages have room for the rows'
// updates.
func schema() string {
	var b strings.Builder
	b.WriteString("create table videos (\n\tid bigint primary key")
	for s := range harness.Stage(harness.StageCount) {
		fmt.Fprintf(&b, ",\n\t%v text not null default 'pending'", s)
	}
	b.WriteString("\n) with (fillfactor = 60);\n")
	for s := range harness.Stage(harness.StageCount) {
		fmt.Fprintf(&b, "create index on videos (id) where %s;\n", ready(s))
	}
	return b.String()
}

// ready is the condition for a row whose turn it is.
func ready(s harness.Stage) string {
	conditions := []string{fmt.Sprintf("%v = 'pending'", s)}
	for _, need := range s.Needs() {
		conditions = append(conditions, fmt.Sprintf("%v = 'completed'", need))
	}
	return strings.Join(conditions, " and ")
}

// claim takes up to so many rows whose turn it is.
func claim(s harness.Stage) string {
	return fmt.Sprintf(`with next as materialized (
	select id from videos where %s order by id limit $1 for no key update skip locked
)
update videos set %v = 'inprogress' from next where videos.id = next.id returning videos.id`, ready(s), s)
}

func complete(s harness.Stage) string {
	return fmt.Sprintf("update videos set %v = 'completed' where id = $1", s)
}

const (
	submit    = `insert into videos (id) values ($1)`
	submitAll = `insert into videos (id) select generate_series($1::bigint, $1::bigint + $2::bigint - 1)`
)
