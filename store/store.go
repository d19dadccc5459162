package store

import (
	"context"
	"fmt"
	"sync"

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
	sql   *texts
}

// New returns the Store of a pipeline. It does not use the database: [Store.Migrate]
// creates the tables, [Store.Check] checks them.
func New(db DB, g Graph) *Store { return &Store{db: db, graph: g, sql: &texts{graph: g}} }

// WithTx returns the Store in the caller's transaction: its changes are committed or
// rolled back with it.
func (s *Store) WithTx(tx pgx.Tx) *Store { return &Store{db: tx, graph: s.graph, sql: s.sql} }

// txTries is how often InTx tries in all.
const txTries = 5

// InTx runs do in a transaction. Where that conflicts with another one, do is called again, in a new transaction.
func (s *Store) InTx(ctx context.Context, do func(in *Store) error) error {
	var err error
	for range txTries {
		err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error { return do(s.WithTx(tx)) })
		if !IsRetryable(err) {
			return err
		}
	}
	return fmt.Errorf("after %d tries: %w", txTries, err)
}

// DB returns the Store's database or transaction, for other tables in it.
func (s *Store) DB() DB { return s.db }

// Graph returns the pipeline's graph.
func (s *Store) Graph() Graph { return s.graph }

// texts remembers the statements of a pipeline with the names of its tables.
type texts struct {
	graph  Graph
	filled sync.Map // text → text
}

func (t *texts) fill(text string) string {
	if filled, ok := t.filled.Load(text); ok {
		return filled.(string)
	}
	filled := t.graph.SQL(text)
	t.filled.Store(text, filled)
	return filled
}

func (s *Store) exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return s.db.Exec(ctx, s.sql.fill(sql), args...)
}

func (s *Store) queryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return s.db.QueryRow(ctx, s.sql.fill(sql), args...)
}

// read runs a query with a plan that uses indexes.
func (s *Store) read(ctx context.Context, sql string, args []any, each func(pgx.Rows) error) error {
	return statement.Read(ctx, s.db, s.sql.fill(sql), args, each)
}

// query returns the rows of a query.
func query[T any](ctx context.Context, s *Store, act, sql string, row pgx.RowToFunc[T], args ...any) ([]T, error) {
	rows, err := s.db.Query(ctx, s.sql.fill(sql), args...)
	if err != nil {
		return nil, s.explain(act, err)
	}
	all, err := pgx.CollectRows(rows, row)
	return all, s.explain(act, err)
}

// readRows returns the rows of a query, with a plan that uses indexes.
func readRows[T any](ctx context.Context, s *Store, act, sql string, row pgx.RowToFunc[T], args ...any) (all []T, err error) {
	err = s.read(ctx, sql, args, func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, row)
		return err
	})
	return all, s.explain(act, err)
}
