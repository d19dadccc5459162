package operators_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

func exec(t *testing.T, pool *pgxpool.Pool, sql string) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
}

func TestMigrate_CreatesWhatIsMissing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers))
	if err := operators.Check(t.Context(), pool); !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("without the tables the error is %v", err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := operators.Migrate(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	exec(t, pool, `insert into cuelight_keys (name, scope, prefix, digest) values ('ann', 'read', 'a', '')`)
	for _, sql := range []string{
		`drop table cuelight_leases`, `alter table cuelight_captions drop column chapters`,
		`drop trigger cuelight_keys_notify on cuelight_keys`, `select`,
	} {
		exec(t, pool, sql)
		exec(t, pool, operators.SQL)
		if err := operators.Check(t.Context(), pool); err != nil {
			t.Errorf("after %s: %v", sql, err)
		}
	}
	var keys int
	if err := pool.QueryRow(t.Context(), `select count(*) from cuelight_keys`).Scan(&keys); err != nil || keys != 1 {
		t.Errorf("there are %d keys, %v", keys, err)
	}
}

func TestMigrate_ChangesNothingWhereNothingIsMissing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `lock table cuelight_keys, cuelight_webhooks in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	if err := operators.Migrate(t.Context(), pool); err != nil {
		t.Error(err)
	}
}

func TestTriggers_NotifyTheChannelsOfPipelines(t *testing.T) {
	t.Parallel()
	g, err := store.NewGraph("podcast", store.Node{Name: "mix"})
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, g.SchemaSQL(), g.TriggersSQL(), operators.SQL))
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, channel := range []string{"cuelight_video", "cuelight_podcast"} {
		if _, err := conn.Exec(t.Context(), "listen "+channel); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, pool, `insert into cuelight_keys (name, scope, prefix, digest) values ('ann', 'read', 'a', '')`)
	for _, c := range []struct {
		sql      string
		channels []string
	}{
		{`insert into cuelight_webhooks (pipeline, url, secret, cursor) values ('video', '', '', 0)`, []string{"cuelight_video"}},
		{`update cuelight_webhooks set cursor = 1`, nil},
		{`update cuelight_webhooks set disabled_at = now(), pipeline = 'podcast'`, []string{"cuelight_podcast"}},
		{`update cuelight_keys set used_at = now()`, nil},
		{`update cuelight_keys set disabled_at = now()`, []string{"cuelight_podcast", "cuelight_video"}},
		{`delete from cuelight_keys`, []string{"cuelight_podcast", "cuelight_video"}},
	} {
		exec(t, pool, c.sql)
		got := make(map[string]bool)
		for range c.channels {
			n, err := conn.WaitForNotification(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got[n.Channel] = true
		}
		for _, channel := range c.channels {
			if !got[channel] {
				t.Errorf("%s: %s got no notification", c.sql, channel)
			}
		}
	}
	exec(t, pool, `notify cuelight_video, 'last'`)
	if n, err := conn.WaitForNotification(t.Context()); err != nil || n.Payload != "last" {
		t.Errorf("there was one more notification: %v, %v", n, err)
	}
}
