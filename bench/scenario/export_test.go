package scenario

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
)

// NewTrial returns a trial without a database.
func NewTrial(system harness.System, s *Session) *Trial {
	return &Trial{System: system, Session: s, systemName: system.Name}
}

// Query runs a query that returns one value.
func (s *Server) Query(ctx context.Context, sql string, to any) error {
	return harness.WithConn(ctx, s.server.URL("postgres"), func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sql).Scan(to)
	})
}
