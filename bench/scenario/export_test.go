package scenario

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/contest"
)

// NewTrial is a trial without a database.
func NewTrial(c contest.Contestant, m *Meeting) *Trial {
	return &Trial{Contestant: c, Meeting: m, name: c.Name()}
}

// Ask asks the server.
func (s *Stand) Ask(ctx context.Context, sql string, to any) error {
	conn, err := pgx.Connect(ctx, s.server.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return conn.QueryRow(ctx, sql).Scan(to)
}
