package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// Grown is Drain in a database with finished tasks: "grown".
type Grown struct {
	Finished int
	Tasks    int
	Slots    int // per stage
}

// Names returns the names of its figures.
func (Grown) Names() []string { return []string{"grown"} }

// Measure adds the finished tasks and drains the others.
func (g Grown) Measure(ctx context.Context, t *Trial) error {
	adder, err := ability[FinishedTaskAdder](t)
	if err != nil {
		return err
	}
	if err := adder.AddFinishedTasks(ctx, t.URL, g.Finished); err != nil {
		return err
	}
	if err := t.Checkpoint(ctx); err != nil { // the drain must not pay for the new pages
		return err
	}
	took, err := t.drain(ctx, g.Tasks, harness.Options{Slots: g.Slots})
	if err == nil {
		t.recordThroughput("grown", fmt.Sprintf("finished=%d", g.Finished), g.Tasks, took)
		t.Note("grown", "%d tasks drained; the finished ones were made with SQL, then vacuumed and analyzed", g.Tasks)
	}
	return err
}

// Held is Drain while another transaction holds an old snapshot, so that no newer row version
// can be removed, neither by vacuum nor by a page read: "held"; or without that: "free".
type Held struct {
	Tasks int
	Slots int // per stage
	Hold  bool
}

// Names returns the names of its figures.
func (Held) Names() []string { return []string{"held"} }

// Measure drains the tasks.
func (h Held) Measure(ctx context.Context, t *Trial) (err error) {
	of := "free"
	if h.Hold {
		of = "held"
		s, takeErr := takeSnapshot(ctx, t.URL)
		if takeErr != nil {
			return takeErr
		}
		defer func() { err = errors.Join(err, s.release(ctx)) }()
	}
	took, err := t.drain(ctx, h.Tasks, harness.Options{Slots: h.Slots})
	if err == nil {
		t.recordThroughput("held", of, h.Tasks, took)
		t.Note("held", "%d tasks drained; the snapshot is that of a transaction with repeatable read in the same database",
			h.Tasks)
	}
	return err
}

// snapshot is a transaction that holds a snapshot.
type snapshot struct {
	conn *pgx.Conn
	tx   pgx.Tx
}

func takeSnapshot(ctx context.Context, url string) (*snapshot, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("take snapshot: %w", err)
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err == nil {
		_, err = tx.Exec(ctx, "select") // the first statement takes the snapshot
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take snapshot: %w", err), conn.Close(context.WithoutCancel(ctx)))
	}
	return &snapshot{conn, tx}, nil
}

// release ends the transaction. It returns an error if the snapshot was not held until now.
func (s *snapshot) release(ctx context.Context) error {
	var held bool
	err := s.tx.QueryRow(ctx,
		"select backend_xmin is not null from pg_stat_activity where pid = pg_backend_pid()").Scan(&held)
	if err == nil && !held {
		err = errors.New("the transaction has no snapshot")
	}
	ctx = context.WithoutCancel(ctx)
	if err = errors.Join(err, s.tx.Rollback(ctx), s.conn.Close(ctx)); err != nil {
		return fmt.Errorf("hold snapshot: %w", err)
	}
	return nil
}

// Size measures the space in the database per million tasks: that of the drained tasks,
// multiplied. It includes row versions that are no longer needed, whose space is for later
// rows; tasks that arrive one by one leave fewer of them.
type Size struct {
	Tasks int
	Slots int // per stage
}

// Names returns the names of its figures.
func (Size) Names() []string { return []string{"size"} }

// Measure drains the tasks.
func (s Size) Measure(ctx context.Context, t *Trial) error {
	sizer, err := ability[Sizer](t)
	if err != nil {
		return err
	}
	before, err := sizer.Sizes(ctx, t.URL)
	if err != nil {
		return err
	}
	if _, err := t.drain(ctx, s.Tasks, harness.Options{Slots: s.Slots}); err != nil {
		return err
	}
	after, err := sizer.Sizes(ctx, t.URL)
	if err != nil {
		return err
	}
	factor := 1e6 / float64(s.Tasks)
	record := func(of string, bytes int64) {
		t.Record("size", of, "MiB", result.FromValue(float64(bytes)*factor/(1<<20)))
	}
	record("table_mib", after.Tasks-before.Tasks)
	record("index_mib", after.Indexes-before.Indexes)
	record("history_mib", after.History-before.History)
	record("outbox_mib", after.Outbox-before.Outbox)
	t.Note("size", "the growth by %d drained tasks, times %.4g", s.Tasks, factor)
	return nil
}

// Bulk measures the time of the triggers when one statement changes many tasks.
type Bulk struct {
	Tasks int
}

// Names returns the names of its figures.
func (Bulk) Names() []string { return []string{"bulk"} }

// Measure measures every change, and records the slowest again.
func (s Bulk) Measure(ctx context.Context, t *Trial) error {
	timer, err := ability[TriggerTimer](t)
	if err != nil {
		return err
	}
	times, err := timer.TriggerTimes(ctx, t.URL, s.Tasks)
	if err != nil {
		return err
	}
	slowest := 0.0
	for change, each := range times {
		ms := result.Milliseconds(each)
		t.Record("bulk", change, "ms", result.FromValue(ms))
		slowest = max(slowest, ms)
	}
	t.Record("bulk", "slowest", "ms", result.FromValue(slowest))
	t.Note("bulk", "the triggers' share of one statement that changes %d tasks, per task", s.Tasks)
	return nil
}
