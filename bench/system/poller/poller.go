// Package poller has a pipeline without notifications: one row per task with a status per
// stage, and a loop for each stage that sleeps, searches for ready rows and works on them.
//
// It is as good as such a design can be, so that only the sleep is compared. A loop claims as
// many rows as it has free slots, with FOR NO KEY UPDATE SKIP LOCKED in one statement. It has
// a partial index of exactly the rows that it searches for. After a full batch it does not
// sleep but continues as soon as a slot is free. Loops do not sleep in step: they start at
// random times, and each sleep varies by a quarter, which changes the mean wait by 2 %. (In
// step, transcode and metadata would lock each other's rows and skip them again and again.)
//
// With an interval of T a task waits T/2 on average for ingest, 2T/3 for the later one of
// transcode and metadata, and T/2 for each of assemble and publish: about 2.2 T in all,
// however idle the system is. An idle system runs five queries every T.
//
// It has no retries, no leases, no fencing and no history; Cuelight has all of them and pays
// for them. A process that dies leaves its claims for ever.
package poller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cuelight/cuelight/bench/system"
)

// Every is a system that polls at an interval.
type Every time.Duration

// Name is that of the figures: polling_5s.
func (e Every) Name() string { return "polling_" + time.Duration(e).String() }

// Settings describes the loops.
func (e Every) Settings() string {
	return fmt.Sprintf("a loop per stage that sleeps %v ± 25 %% and claims up to its free slots with SKIP LOCKED, "+
		"again at once after a full batch; a partial index per stage, %d connections", time.Duration(e), connections)
}

// SetUp creates the table with its indexes. Its pages have room for updates of the rows.
func (Every) SetUp(ctx context.Context, url string) error {
	var columns, indexes strings.Builder
	for _, stage := range system.Stages {
		fmt.Fprintf(&columns, ", %v text not null default 'pending'", stage)
		fmt.Fprintf(&indexes, "create index on videos (id) where %s;\n", readyCondition(stage))
	}
	return system.Exec(ctx, url, fmt.Sprintf("create table videos (id bigint primary key%s) with (fillfactor = 60);\n%s",
		&columns, &indexes))
}

// Preload inserts tasks while no loop runs.
func (Every) Preload(ctx context.Context, url string, first int64, n int) error {
	return system.Exec(ctx, url, submitAllSQL, first, n)
}

const (
	submitSQL    = `insert into videos (id) values ($1)`
	submitAllSQL = `insert into videos (id) select generate_series($1::bigint, $1::bigint + $2::bigint - 1)`
)

// readyCondition selects the rows for which a stage is ready.
func readyCondition(s system.Stage) string {
	conditions := []string{fmt.Sprintf("%v = 'pending'", s)}
	for _, need := range s.Needs() {
		conditions = append(conditions, fmt.Sprintf("%v = 'completed'", need))
	}
	return strings.Join(conditions, " and ")
}

// claimSQL claims up to $1 ready rows.
func claimSQL(s system.Stage) string {
	return fmt.Sprintf(`with next as materialized (
	select id from videos where %s order by id limit $1 for no key update skip locked
)
update videos set %v = 'inprogress' from next where videos.id = next.id returning videos.id`, readyCondition(s), s)
}

func completeSQL(s system.Stage) string {
	return fmt.Sprintf("update videos set %v = 'completed' where id = $1", s)
}
