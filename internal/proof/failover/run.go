package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/store"
)

// plan is what is to happen. Everything must be set but readOnly.
type plan struct {
	load, before, away time.Duration
	workers, rate      int
	readOnly           bool
}

// summary is what came of it.
type summary struct {
	Seconds          float64 `json:"seconds"`
	Submitted        int     `json:"submitted"`         // tried to submit
	Acknowledged     int     `json:"acknowledged"`      // of these, were told that it is committed
	Completed        int     `json:"completed"`         // tasks with all stages completed
	Lost             int     `json:"lost"`              // acknowledged, and not there or not completed
	Duplicated       int     `json:"duplicated"`        // stages of a task that were completed more than once
	Violations       int     `json:"violations"`        // of the invariants
	OutageMS         int64   `json:"outage_ms"`         // from the last acknowledgement before to the first after
	WorkersRestarted int     `json:"workers_restarted"` // because they had ended
}

func (s summary) good() bool {
	return s.Lost+s.Duplicated+s.Violations+s.WorkersRestarted == 0 &&
		s.Submitted > 0 && s.Acknowledged == s.Submitted && s.Completed == s.Submitted && s.OutageMS > 0
}

// run carries out the plan. An error means that it could not be, and so shows
// nothing.
func run(ctx context.Context, p plan, out io.Writer) (sum summary, err error) {
	t := progresslog.New(out)
	two, err := newPair(ctx, t)
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, two.close()) }()
	pool, err := connect(ctx, two.address())
	if err != nil {
		return sum, err
	}
	defer pool.Close()

	crew, err := newCrew(ctx, t, p.workers, two.address())
	if err != nil {
		return sum, err
	}
	defer crew.close()
	l := newLoad(store.New(pool, graph()), p.rate)
	g, both := errgroup.WithContext(ctx)
	g.Go(func() error { return l.run(both, p.load) })
	g.Go(func() error { return two.fail(both, p, l) })
	t.Logf("submitting %d tasks a second", p.rate)
	if err := g.Wait(); err != nil {
		return sum, err
	}
	t.Logf("submitted %d, of which %d more than once until that was acknowledged", l.submitted, l.repeated)
	return judge(ctx, t, two.standby, crew, l)
}

// judge waits until all is done, stops the workers, and looks at what is there.
func judge(ctx context.Context, t *progresslog.Log, db *pgserver.Server, crew *crew, l *load) (summary, error) {
	sum := summary{
		Submitted: l.submitted, Acknowledged: len(l.acknowledged),
		OutageMS: l.outage().Milliseconds(),
	}
	pool, err := pgxpool.New(ctx, db.URL(database))
	if err != nil {
		return sum, err
	}
	defer pool.Close()
	if err := settled(ctx, t, pool); err != nil {
		return sum, err
	}
	sum.WorkersRestarted = crew.close()
	err = inspect(ctx, t, pool, l, &sum)
	sum.Seconds = float64(time.Since(t.Started()).Milliseconds()) / 1000
	return sum, err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
