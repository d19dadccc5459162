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

// DB sends statements to the database. A *pgxpool.Pool is one.
type DB interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// DatabaseOptions say how often a [Database] queries.
type DatabaseOptions struct {
	// MaxAge is how long an answer is cached. Default 10 s.
	MaxAge time.Duration

	// Timeout limits a query. Default 4 s, less than the timeout of a scrape.
	Timeout time.Duration
}

// Database reads the [Figures] of a pipeline and caches them. Concurrent callers share
// one query.
type Database struct {
	db    DB
	graph store.Graph
	sql   string
	o     DatabaseOptions

	querying chan struct{} // has an element while no query runs

	mu    sync.Mutex
	last  Figures // zero before the first answer
	tried time.Time
	err   error // of the latest query
}

// retryAfter is the time to the next query after a failed one.
const retryAfter = time.Second

// NewDatabase returns the Database of a pipeline. It does not query yet.
func NewDatabase(db DB, g store.Graph, o DatabaseOptions) *Database {
	if o.MaxAge <= 0 {
		o.MaxAge = 10 * time.Second
	}
	if o.Timeout <= 0 {
		o.Timeout = 4 * time.Second
	}
	d := &Database{db: db, graph: g, sql: g.SQL(figuresSQL, CountAtMost), o: o, querying: make(chan struct{}, 1)}
	d.querying <- struct{}{}
	return d
}

// Figures returns figures that are no older than MaxAge. If the query fails, Figures
// returns the error and the last figures, whose At is zero if there are none. It takes
// no longer than Timeout; while another caller's query runs, it ends with ctx.
func (d *Database) Figures(ctx context.Context) (Figures, error) {
	if f, err, fresh := d.cached(); fresh {
		return f, err
	}
	select {
	case <-d.querying:
		defer func() { d.querying <- struct{}{} }()
	case <-ctx.Done():
		f, _, _ := d.cached()
		return f, fmt.Errorf("read figures: %w", ctx.Err())
	}
	if f, err, fresh := d.cached(); fresh {
		return f, err
	}
	// Other callers wait for the answer, too, so the query does not end with this ctx.
	f, err := d.query(context.WithoutCancel(ctx))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tried, d.err = time.Now(), err
	if err == nil {
		d.last = f
	}
	return d.last.clone(), err
}

// cached returns the last answer and whether it is fresh.
func (d *Database) cached() (f Figures, err error, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maxAge := d.o.MaxAge
	if d.err != nil {
		maxAge = min(retryAfter, maxAge)
	}
	return d.last.clone(), d.err, !d.tried.IsZero() && time.Since(d.tried) < maxAge
}

func (d *Database) query(ctx context.Context) (Figures, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.Timeout)
	defer cancel()
	f := Figures{At: time.Now()}
	for _, name := range d.graph.Stages() {
		f.Stages = append(f.Stages, StageFigures{Name: name})
	}
	var batch pgx.Batch
	batch.Queue(figuresSettings, strconv.FormatInt(d.o.Timeout.Milliseconds(), 10))
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
