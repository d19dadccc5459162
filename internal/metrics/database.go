package metrics

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// DB sends statements to the database. A *pgxpool.Pool is one.
type DB interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Database reads the metrics that all processes share, and caches them. Concurrent
// callers share one query.
type Database struct {
	db       DB
	graph    store.Graph
	metrics  []databaseMetric
	defaults map[series]float64
	maxAge   time.Duration // how long an answer is cached
	timeout  time.Duration // of a query

	querying chan struct{} // has an element while no query runs

	mu    sync.Mutex
	last  snapshot // zero before the first answer
	tried time.Time
	err   error // of the latest query
}

const (
	// retryAfter is the time to the next query after a failed one.
	retryAfter = time.Second
	// queryTimeout is less than the timeout of a scrape.
	queryTimeout = 4 * time.Second
)

// NewDatabase returns the Database of a pipeline. It does not query yet.
func NewDatabase(db DB, g store.Graph) *Database {
	d := &Database{
		db: db, graph: g, metrics: databaseMetrics(g.Stages()), defaults: make(map[series]float64),
		maxAge: 10 * time.Second, timeout: queryTimeout,
		querying: make(chan struct{}, 1),
	}
	for _, m := range d.metrics {
		m.addDefaults(d.defaults)
	}
	d.querying <- struct{}{}
	return d
}

// snapshot returns a snapshot that is no older than maxAge. If the query fails, it
// returns the error and the last snapshot, whose time is zero if there is none. It takes
// no longer than timeout; while another caller's query runs, it ends with ctx. Nobody may
// change the values of a snapshot.
func (d *Database) snapshot(ctx context.Context) (snapshot, error) {
	if s, err, fresh := d.cached(); fresh {
		return s, err
	}
	select {
	case <-d.querying:
		defer func() { d.querying <- struct{}{} }()
	case <-ctx.Done():
		s, _, _ := d.cached()
		return s, fmt.Errorf("read database metrics: %w", ctx.Err())
	}
	if s, err, fresh := d.cached(); fresh {
		return s, err
	}
	// Other callers wait for the answer, too, so the query does not end with this ctx.
	s, err := d.query(context.WithoutCancel(ctx))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tried, d.err = time.Now(), err
	if err == nil {
		d.last = s
	}
	return d.last, err
}

// cached returns the last answer and whether it is fresh.
func (d *Database) cached() (s snapshot, err error, fresh bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maxAge := d.maxAge
	if d.err != nil {
		maxAge = min(retryAfter, maxAge)
	}
	return d.last, d.err, !d.tried.IsZero() && time.Since(d.tried) < maxAge
}

func (d *Database) query(ctx context.Context) (snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	s := snapshot{at: time.Now(), values: maps.Clone(d.defaults)}
	var batch pgx.Batch
	batch.Queue(snapshotSettings, strconv.FormatInt(d.timeout.Milliseconds(), 10))
	var stats report.Stats
	sql, args, read := report.StatsQuery(d.graph, &stats)
	batch.Queue(sql, args...).Query(read)
	batch.Queue(d.graph.SQL(snapshotSQL), d.graph.Stages(), report.MaxCount).Query(s.scan)
	if err := d.db.SendBatch(ctx, &batch).Close(); err != nil {
		return snapshot{}, fmt.Errorf("read database metrics: %w", err)
	}
	s.addStats(stats)
	s.took = time.Since(s.at)
	return s, nil
}
