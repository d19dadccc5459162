package daemon

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/metrics/health"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

func TestAlerts_IgnoreALostListenerBehindAPooler(t *testing.T) {
	t.Parallel()
	_, through := pgtest.NewBouncer(t, pgtest.New(t, pgtest.Schema{}), "transaction")
	cc := through.Config().ConnConfig
	address := fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=%s",
		cc.Host, cc.Port, cc.User, cc.Password, cc.Database)
	db, err := (&dbconn.Options{DatabaseURL: address}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	d := &Daemon{Options: Options{
		DB: db, Engine: &Engine{}, Log: zap.NewNop(), Config: video.Config{DataDir: t.TempDir(), PublishDir: t.TempDir()},
	}}
	services, err := d.newServices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if services.alerts.listenerHealthy() {
		t.Error("a listener that is not connected raises no alert")
	}
	if err := db.Pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !services.alerts.listenerHealthy() {
		t.Error("a daemon behind a pooler raises an alert")
	}
}

func TestAlerts_DoNotWaitForADiskThatHangs(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "host=127.0.0.1 port=1") // connects to nothing
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	stuck := make(chan struct{})
	defer close(stuck)
	a := alertChecks{
		webhooks:        webhook.New(webhook.Options{DB: pool, Store: store.New(pool, store.Video())}),
		listenerHealthy: func() bool { return true },
		disks: health.New(health.Options{Timeout: time.Millisecond, Checks: []health.Check{
			{Name: "away", Run: func(context.Context) error { <-stuck; return nil }},
		}}),
	}
	if err := a.check(t.Context()); err == nil {
		t.Error("no alert was raised")
	}
}

// Alerts are raised for as long as their cause lasts; that of the listener only after a
// while.
func TestAlerts_AreRaisedWhileTheirCauseLasts(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	st := store.New(pool, store.Video())
	hooks := webhook.New(webhook.Options{DB: pool, Store: st})
	registration := webhook.Settings{URL: "https://example.com/", Types: []string{"alert"}}
	if _, err := hooks.Add(t.Context(), registration); err != nil {
		t.Fatal(err)
	}
	healthy, full := false, errors.New("no room")
	var data error
	a := alertChecks{
		webhooks: hooks, log: zap.NewNop(), host: "media-1", listenerHealthy: func() bool { return healthy },
		disks: health.New(health.Options{MaxAge: time.Nanosecond, Checks: []health.Check{
			{Name: "data", Run: func(context.Context) error { return data }},
			{Name: "published", Run: func(context.Context) error { return full }},
		}}),
	}
	raised := func() string {
		t.Helper()
		if _, err := pool.Exec(t.Context(), "delete from outbox"); err != nil {
			t.Fatal(err)
		}
		if err := a.check(t.Context()); err != nil {
			t.Fatal(err)
		}
		var alerts string
		err := pool.QueryRow(t.Context(), `
			select coalesce(string_agg(
				concat_ws(' ', data->>'name', data->>'host', data->>'disk', data->>'error'), ', ' order by id), '')
			from outbox`).Scan(&alerts)
		if err != nil {
			t.Fatal(err)
		}
		return alerts
	}
	const published = "disk_low media-1 published no room"
	if got := raised(); got != published {
		t.Errorf("at first the alerts are %s", got)
	}
	a.listenerDownSince = a.listenerDownSince.Add(-listenerAlertAfter)
	data = full
	if got := raised(); got != "listener_down media-1, disk_low media-1 data no room, "+published {
		t.Errorf("a minute later the alerts are %s", got)
	}
	healthy, data = true, nil
	if got := raised(); got != published {
		t.Errorf("when the listener is back the alerts are %s", got)
	}
	healthy = false
	if got := raised(); got != published {
		t.Errorf("right after the listener is lost the alerts are %s", got)
	}
}
