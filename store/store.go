package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/statement"
)

// DB is a database connection: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Store is the tables of one pipeline in one database. It has no state of its own:
// many Stores, in many processes, may work on the same tables, and many goroutines may
// use one Store.
type Store struct {
	db    DB
	graph Graph
	sql   *statements
}

// WithTx returns the Store in the caller's transaction: its changes are committed or
// rolled back with it.
func (s *Store) WithTx(tx pgx.Tx) *Store {
	return &Store{db: tx, graph: s.graph, sql: s.sql}
}

// DB returns the Store's database or transaction, for other tables in it.
func (s *Store) DB() DB { return s.db }

// Graph returns the pipeline's graph.
func (s *Store) Graph() Graph { return s.graph }

// statements are the SQL texts of one pipeline, filled from the templates next to
// the methods that send them.
type statements struct {
	submitOne, submit, submitted string
	events                       string
	get, findByIDSuffix, history string
	result                       string
	parts, partResults           string // empty where no stage divides
	workers, stoppedWorkers      string
	findWorkers, workersOf       string
	countRefused                 string
	retry, retryFresh            string
	cancel, override             string
	matching, countMatching      string
	retryMatching, retryDead     string
	pages                        map[pageKey]string
}

func (s *Store) read(ctx context.Context, sql string, args []any, each func(pgx.Rows) error) error {
	return statement.Read(ctx, s.db, sql, args, each)
}
