// Package poller has a pipeline without notifications: one row per task with a status per
// stage, and a loop for each stage that sleeps, searches for ready rows and works on them.
//
// It is as good as such textbook code can be, so that only the sleep is compared. A loop claims as
// many rows as it has slots, with FOR NO KEY UPDATE SKIP LOCKED in one statement. It has
// a partial index of exactly the rows that it searches for. After a full batch it does not
// sleep. Loops do not sleep in step: they start at
// random times, and each sleep varies by a quarter, which changes the mean wait by 2 %. (In
// step, transcode and metadata would lock each other's rows and skip them again and again.)
//
// It has no retries, no leases, no fencing and no history; Cuelight has all of them and pays
// for them. A process that dies leaves its claims for ever.
package poller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/system"
)

// Every is a system that polls at an interval.
type Every time.Duration

const connections = 20

// Name is that of the figures: polling_5s.
func (e Every) Name() string { return "polling_" + time.Duration(e).String() }

// Settings describes the loops.
func (e Every) Settings() string {
	return fmt.Sprintf("a loop per stage that sleeps %v ± 25 %% and claims up to its slots with SKIP LOCKED, "+
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
	return system.Exec(ctx, url, submitSQL, first, n)
}

// submitSQL inserts $2 tasks from number $1 on.
const submitSQL = `insert into videos (id) select generate_series($1::bigint, $1::bigint + $2::bigint - 1)`

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

type workers struct {
	system.Options
	interval  time.Duration
	pool      *pgxpool.Pool
	errs      system.FirstError
	stopLoops context.CancelFunc
	abortWork context.CancelFunc
	loops     sync.WaitGroup
}

// Start starts a loop for each stage.
func (e Every) Start(ctx context.Context, url string, o system.Options) (system.Workers, error) {
	pool, err := system.OpenPool(ctx, url, connections)
	if err != nil {
		return nil, fmt.Errorf("start polling: %w", err)
	}
	w := &workers{Options: o, interval: time.Duration(e), pool: pool}
	workCtx, abort := context.WithCancel(context.WithoutCancel(ctx))
	loopCtx, stop := context.WithCancel(workCtx)
	w.stopLoops, w.abortWork = stop, abort
	for _, stage := range system.Stages {
		w.loops.Go(func() { w.loop(loopCtx, workCtx, stage) })
	}
	return w, nil
}

// loop claims until loopCtx is done. Claimed rows are worked on until workCtx is done.
func (w *workers) loop(loopCtx, workCtx context.Context, stage system.Stage) {
	timer := time.NewTimer(rand.N(w.interval))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-loopCtx.Done():
			return
		}
		for loopCtx.Err() == nil && w.batch(workCtx, stage) {
		}
		timer.Reset(w.interval*3/4 + rand.N(w.interval/2))
	}
}

// batch claims a row for each slot and works on them. It reports whether there may be more rows: every slot got one.
func (w *workers) batch(ctx context.Context, stage system.Stage) (more bool) {
	rows, _ := w.pool.Query(ctx, claimSQL(stage), w.Slots) // CollectRows returns the error
	claimed, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		w.errs.Add(fmt.Errorf("claim %v: %w", stage, err))
		return false
	}
	var all sync.WaitGroup
	for _, task := range claimed {
		all.Go(func() { w.errs.Add(w.work(ctx, task, stage)) })
	}
	all.Wait()
	return len(claimed) == w.Slots
}

func (w *workers) work(ctx context.Context, task int64, stage system.Stage) error {
	if err := w.DoWork(ctx, task, stage, 0); err != nil {
		return err
	}
	if _, err := w.pool.Exec(ctx, fmt.Sprintf("update videos set %v = 'completed' where id = $1", stage), task); err != nil {
		return fmt.Errorf("complete %v: %w", stage, err)
	}
	w.ReportCompleted(task, stage)
	return nil
}

// Submit inserts a task.
func (w *workers) Submit(ctx context.Context, task int64) error { return w.SubmitAll(ctx, task, 1) }

// SubmitAll inserts tasks with one statement.
func (w *workers) SubmitAll(ctx context.Context, first int64, n int) error {
	if _, err := w.pool.Exec(ctx, submitSQL, first, n); err != nil {
		return fmt.Errorf("submit tasks: %w", err)
	}
	return nil
}

// Stop waits for running work and cancels it when ctx is done.
func (w *workers) Stop(ctx context.Context) error {
	w.stopLoops()
	defer context.AfterFunc(ctx, w.abortWork)()
	w.loops.Wait()
	w.abortWork()
	w.pool.Close()
	return w.errs.Err()
}
