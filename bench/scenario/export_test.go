package scenario

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
)

// NewTrial is a trial without a database.
func NewTrial(c harness.System, m *Session) *Trial {
	return &Trial{System: c, Session: m, systemName: c.Name()}
}

// Ask asks the server.
func (s *Server) Query(ctx context.Context, sql string, to any) error {
	conn, err := pgx.Connect(ctx, s.server.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql).Scan(to)
}
