package dbconn

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
)

// Statements have a timeout, unless the operator has set one, or a pooler shares the
// session with other clients.
func TestReadPool_LimitsStatements(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	if _, err := pool.Exec(t.Context(), `
		do $$ begin execute format('alter database %I set jit = on', current_database()); end $$`); err != nil {
		t.Fatal(err)
	}
	address := func(pool *pgxpool.Pool, more string) string {
		cc := pool.Config().ConnConfig
		return fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=%s %s",
			cc.Host, cc.Port, cc.User, cc.Password, cc.Database, more)
	}
	for name, c := range map[string]struct{ address, aside string }{
		"direct":        {address(pool, ""), "45s"},
		"set by others": {address(pool, "options='-c statement_timeout=7s'"), "7s"},
		"pooled":        {"", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.address == "" {
				_, through := pgtest.NewBouncer(t, pool, "transaction")
				c.address = address(through, "")
			}
			db, err := (&Options{DatabaseURL: c.address}).Connect(t.Context())
			if err == nil {
				err = db.OpenReadPool(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}()
			for range 2 { // the second time on another connection, where that is a pooler's
				var aside, jit string
				if err := db.Reads.Pool.QueryRow(t.Context(), "show jit").Scan(&jit); err != nil ||
					(jit == "off") != (name != "pooled") {
					t.Errorf("aside jit is %s, %v", jit, err)
				}
				if err := db.Reads.Pool.QueryRow(t.Context(), "show statement_timeout").Scan(&aside); err != nil ||
					aside != c.aside {
					t.Errorf("aside it is %s, %v, want %s", aside, err, c.aside)
				}
			}
			var work string
			if err := db.Pool.QueryRow(t.Context(), "show statement_timeout").Scan(&work); err != nil || work == "45s" {
				t.Errorf("for the work it is %s, %v", work, err)
			}
		})
	}
}
