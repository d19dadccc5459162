package scenario

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
)

// Grower is a contestant whose tables can be filled with finished tasks, as
// they are after a long time.
type FinishedTaskAdder interface {
	AddFinishedTasks(ctx context.Context, url string, finished int) error
}

// Grown is Drain in a database that has finished tasks in it: "grown".
type Grown struct {
	Finished int
	Tasks    int
	Slots    int // per stage
}

// Names are those of its figures.
func (Grown) Names() []string { return []string{"grown"} }

// Measure measures it.
func (g Grown) Measure(ctx context.Context, t *Trial) error {
	grower, ok := t.System.(FinishedTaskAdder)
	if !ok {
		return fmt.Errorf("%w: no way to make finished tasks", errNotHere)
	}
	if err := grower.AddFinishedTasks(ctx, t.URL, g.Finished); err != nil {
		return err
	}
	if err := t.Checkpoint(ctx); err != nil { // what was made is not to be written during the drain
		return err
	}
	l := load{tasks: g.Tasks, options: harness.Options{Slots: g.Slots}}
	took, err := l.drain(ctx, t)
	if err == nil {
		t.Record("grown", fmt.Sprintf("finished=%d", g.Finished), "tasks/s", perSecond(g.Tasks, took))
		t.Note("grown", "%d tasks drained; the finished ones were made with SQL, then vacuumed and analyzed", g.Tasks)
	}
	return err
}

// Held is Drain while a transaction elsewhere has a snapshot from before, so that
// no version of a row that came since can be removed, neither by vacuum nor by
// whoever reads the page: "held"; or the same without that: "free".
type Held struct {
	Tasks int
	Slots int // per stage
	Hold  bool
}

// Names are those of its figures.
func (Held) Names() []string { return []string{"held"} }

// Measure measures it.
func (h Held) Measure(ctx context.Context, t *Trial) (err error) {
	of := "free"
	if h.Hold {
		of = "held"
		s, takeErr := takeSnapshot(ctx, t.URL)
		if takeErr != nil {
			return takeErr
		}
		defer func() { err = errors.Join(err, s.end(ctx)) }()
	}
	l := load{tasks: h.Tasks, options: harness.Options{Slots: h.Slots}}
	took, err := l.drain(ctx, t)
	if err == nil {
		t.Record("held", of, "tasks/s", perSecond(h.Tasks, took))
		t.Note("held", "%d tasks drained; the snapshot is that of a transaction with repeatable read in the same database", h.Tasks)
	}
	return err
}

// snapshot is a transaction that sees everything as it was.
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
		_, err = tx.Exec(ctx, "select") // the first statement takes it
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take snapshot: %w", err), conn.Close(context.WithoutCancel(ctx)))
	}
	return &snapshot{conn, tx}, nil
}

// end ends it. The error is that it was not there any more, or held nothing
// back.
func (s *snapshot) end(ctx context.Context) error {
	var held bool
	err := s.tx.QueryRow(ctx, "select backend_xmin is not null from pg_stat_activity where pid = pg_backend_pid()").Scan(&held)
	if err == nil && !held {
		err = errors.New("it held nothing back")
	}
	ctx = context.WithoutCancel(ctx)
	if err = errors.Join(err, s.tx.Rollback(ctx), s.conn.Close(ctx)); err != nil {
		return fmt.Errorf("hold snapshot: %w", err)
	}
	return nil
}
