package daemon

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// refusalFixture is a key with a remote worker, and the refusals of two daemons.
type refusalFixture struct {
	t       *testing.T
	pool    *pgxpool.Pool
	store   *store.Store
	key     access.Key
	worker  store.ID
	daemons [2]*refusals
}

func newRefusalFixture(t *testing.T) *refusalFixture {
	t.Helper()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	f := &refusalFixture{t: t, pool: pool, store: store.New(pool, store.Video())}
	hooks := webhook.New(webhook.Options{DB: pool, Store: f.store})
	_, err := hooks.Add(t.Context(), webhook.Settings{URL: "https://example.com/", Types: []string{webhook.AlertWorkerDisabled}})
	if err == nil {
		f.key, _, err = access.NewKeyStore(pool).CreateKey(t.Context(), "north", access.Work.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	f.worker = f.register()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range f.daemons {
		f.daemons[i] = newRefusals(f.store, zap.NewNop())
		all.Go(func() { f.daemons[i].run(ctx) })
	}
	t.Cleanup(func() { cancel(); all.Wait() })
	return f
}

func (f *refusalFixture) register() store.ID {
	f.t.Helper()
	e := engine.New(f.pool, store.Video())
	id, err := e.RegisterWorker(f.t.Context(), store.Worker{Name: "north 1", Host: "h", Principal: f.key.PrincipalName()})
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

// refuse records a refused result of a worker, and makes all daemons check the key.
func (f *refusalFixture) refuse(worker store.ID) {
	f.t.Helper()
	_, err := f.pool.Exec(f.t.Context(), `insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome, error_class)
		values (cuelight_id(), cuelight_id(), 'transcode', 1, $1, now(), 'failed', 'refused')`, worker)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, d := range f.daemons {
		d.observe(worker, f.key.PrincipalName(), "it is black")
	}
}

func (f *refusalFixture) count(sql string) int {
	f.t.Helper()
	var n int
	if err := f.pool.QueryRow(f.t.Context(), sql).Scan(&n); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// checkAll checks the key in the place of the daemons, so that what they do is over.
func (f *refusalFixture) checkAll() {
	f.t.Helper()
	for _, d := range f.daemons {
		waittest.Until(f.t, "the refusal is taken", func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return len(d.reasons) == 0
		})
		if err := d.check(f.t.Context(), f.key.PrincipalName(), "it is black"); err != nil {
			f.t.Fatal(err)
		}
	}
}

const (
	countDisabled = "select count(*) from cuelight_keys where disabled_at is not null"
	countAudited  = `select count(*) from cuelight_audit where action = 'key_disable' and actor = 'cuelight'
		and detail->>'reason' = '3 results of its workers were refused, the last one because: it is black'`
	countAlerts = `select count(*) from outbox where type = 'alert' and data->>'name' = 'worker_disabled'`
)

func TestRefusals_DisableTheKeyAfterThreeSinceItWasEnabled(t *testing.T) {
	t.Parallel()
	f := newRefusalFixture(t)
	second := f.register()
	for round := 1; round <= 2; round++ {
		f.refuse(f.worker)
		f.refuse(second)
		f.checkAll()
		if n := f.count(countDisabled); n != 0 {
			t.Fatalf("round %d: the key is disabled after two refusals", round)
		}
		f.refuse(f.worker)
		waittest.Equal(t, "the number of disabled keys", 1, func() int { return f.count(countDisabled) })
		f.checkAll()
		if n := f.count(countAudited); n != round {
			t.Errorf("round %d: %d audit entries", round, n)
		}
		if n := f.count(countAlerts); n != round {
			t.Errorf("round %d: %d alerts", round, n)
		}
		if n := f.count("select count(*) from workers where stopped_at is not null"); n != 2 {
			t.Errorf("round %d: %d workers have stopped", round, n)
		}
		operator := ops.Actions{Store: f.store, Authorize: func(context.Context, access.Scope) (string, error) { return "admin", nil }}
		if key, err := operator.EnableKey(t.Context(), f.key.ID); err != nil || key.EnabledAt == nil {
			t.Fatalf("enabled: %+v, %v", key, err)
		}
		f.checkAll()
		if n := f.count(countDisabled); n != 0 {
			t.Fatalf("round %d: refusals before the key was enabled count", round)
		}
	}
}

func TestRefusals_CountThoseOfTheKeyOnly(t *testing.T) {
	t.Parallel()
	f := newRefusalFixture(t)
	other, err := engine.New(f.pool, store.Video()).RegisterWorker(t.Context(), store.Worker{Host: "h", Principal: "key aaaaaaaa (north)"})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.refuse(other)
	}
	f.checkAll()
	for _, principal := range []string{"admin", "key aaaaaaaa (north)", "", strings.Replace(f.key.PrincipalName(), "north", "south", 1)} {
		if err := f.daemons[0].check(t.Context(), principal, "it is black"); err != nil {
			t.Errorf("%q: %v", principal, err)
		}
	}
	if n := f.count(countDisabled) + f.count(countAlerts); n != 0 {
		t.Errorf("%d keys and alerts", n)
	}
}
