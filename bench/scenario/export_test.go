package scenario

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/system"
)

// Query runs a query that returns one value.
func (s *Server) Query(ctx context.Context, sql string, to any) error {
	return system.WithConn(ctx, s.URL("postgres"), func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sql).Scan(to)
	})
}
