package metrics

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// DB is what a Database needs of a database. A *pgxpool.Pool has it.
type DB interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// DatabaseOptions say how often a [Database] is asked.
type DatabaseOptions struct {
	// Every is for how long an answer is good. Default 10 s.
	Every time.Duration

	// Within is how long an answer may take. Default 4 s, less than Prometheus
	// waits for a scrape.
	Within time.Duration
}

// Database knows the [Figures] of a pipeline. However many ask for them, one at a
// time asks the database, and what it said is good for a while.
type Database struct {
	db    DB
	graph store.Graph
	sql   string
	o     DatabaseOptions

	turn chan struct{} // whoever has its value may ask

	mu    sync.Mutex
	last  Figures // zero where there never was an answer
	tried time.Time
	err   error // of the latest try
}

// retryAfter is how soon a database that did not answer is asked again.
const retryAfter = time.Second

// NewDatabase returns the Database of a pipeline. It does not ask it anything.
func NewDatabase(db DB, g store.Graph, o DatabaseOptions) *Database {
	if o.Every <= 0 {
		o.Every = 10 * time.Second
	}
	if o.Within <= 0 {
		o.Within = 4 * time.Second
	}
	d := &Database{db: db, graph: g, sql: g.SQL(figuresSQL, CountAtMost), o: o, turn: make(chan struct{}, 1)}
	d.turn <- struct{}{}
	return d
}

// Figures returns the latest figures, which are no older than Every. Where the
// database does not give any, it returns why, and those that it gave last: their
// At is zero if there never were any. It returns within Within, or as soon as ctx
// is done if somebody else is asking just now.
func (d *Database) Figures(ctx context.Context) (Figures, error) {
	if f, err, good := d.cached(); good {
		return f, err
	}
	select {
	case <-d.turn:
		defer func() { d.turn <- struct{}{} }()
	case <-ctx.Done():
		f, _, _ := d.cached()
		return f, fmt.Errorf("read figures: %w", ctx.Err())
	}
	if f, err, good := d.cached(); good {
		return f, err
	}
	// Others wait for the answer, too, so it does not depend on this caller.
	f, err := d.ask(context.WithoutCancel(ctx))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tried, d.err = time.Now(), err
	if err == nil {
		d.last = f
	}
	return d.last.clone(), err
}

// cached is what is known, and whether that is good enough.
func (d *Database) cached() (f Figures, err error, good bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	lasts := d.o.Every
	if d.err != nil {
		lasts = min(retryAfter, lasts)
	}
	return d.last.clone(), d.err, !d.tried.IsZero() && time.Since(d.tried) < lasts
}

func (d *Database) ask(ctx context.Context) (Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.Within)
	defer cancel()
	f := Figures{At: time.Now()}
	for _, name := range d.graph.Stages() {
		f.Stages = append(f.Stages, StageFigures{Name: name})
	}
	var batch pgx.Batch
	batch.Queue(figuresSettings, strconv.FormatInt(d.o.Within.Milliseconds(), 10))
	batch.Queue(d.sql).Query(f.scan)
	if err := d.db.SendBatch(ctx, &batch).Close(); err != nil {
		return Figures{}, fmt.Errorf("read figures: %w", err)
	}
	f.Took = time.Since(f.At)
	return f, nil
}

func (f Figures) clone() Figures {
	f.Stages, f.Workers = slices.Clone(f.Stages), slices.Clone(f.Workers)
	return f
}
