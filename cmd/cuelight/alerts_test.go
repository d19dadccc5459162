package main

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
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

func TestAlerts_IgnoreALostListenerBehindAPooler(t *testing.T) {
	t.Parallel()
	_, through := pgtest.NewBouncer(t, pgtest.New(t, pgtest.Schema{}), "transaction")
	cc := through.Config().ConnConfig
	address := fmt.Sprintf("host=%s port=%d user=%s password=%s dbname=%s", cc.Host, cc.Port, cc.User, cc.Password, cc.Database)
	db, err := (&dbconn.Options{DatabaseURL: address}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	d := &daemon{db: db, log: zap.NewNop(), engine: &engine{abort: make(chan struct{})}}
	b, err := d.standBeside(t.Context(), &frontOptions{webhookAllow: new([]string)}, video.Config{DataDir: t.TempDir(), PublishDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if b.abort == nil {
		t.Error("a second signal does not reach the services")
	}
	if b.alarms.hearing() {
		t.Error("a listener that is not connected raises no alert")
	}
	if err := db.Pool.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !b.alarms.hearing() {
		t.Error("a daemon behind a pooler raises an alert")
	}
}

// A disk on a network that does not answer must not keep the daemon from ending.
func TestDiskThatDoesNotAnswerHoldsUpNothing(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "host=127.0.0.1 port=1") // connects to nothing
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	stuck := make(chan struct{})
	defer close(stuck)
	a := alarms{
		hooks:   webhook.New(webhook.Options{DB: pool, Store: store.New(pool, store.Video())}),
		hearing: func() bool { return true },
		disks: health.New(health.Options{Within: time.Millisecond, Checks: []health.Check{
			{Name: "away", Run: func(context.Context) error { <-stuck; return nil }},
		}}),
	}
	if err := a.look(t.Context()); err == nil {
		t.Error("nobody was to be told")
	}
}

// What a daemon finds wrong with its host is told while it lasts, and of a listener
// once it has lasted.
func TestAlarmsAreToldToWebhooks(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers))
	st := store.New(pool, store.Video())
	hooks := webhook.New(webhook.Options{DB: pool, Store: st})
	if _, err := hooks.Add(t.Context(), webhook.Registration{URL: "https://example.com/", Types: []string{"alert"}}); err != nil {
		t.Fatal(err)
	}
	hearing, full := false, errors.New("no room")
	var data error
	a := alarms{
		hooks: hooks, log: zap.NewNop(), host: "media-1", hearing: func() bool { return hearing },
		disks: health.New(health.Options{Keep: time.Nanosecond, Checks: []health.Check{
			{Name: "data", Run: func(context.Context) error { return data }},
			{Name: "published", Run: func(context.Context) error { return full }},
		}}),
	}
	look := func() string {
		t.Helper()
		if _, err := pool.Exec(t.Context(), "delete from outbox"); err != nil {
			t.Fatal(err)
		}
		if err := a.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		var told string
		err := pool.QueryRow(t.Context(), `select coalesce(string_agg(concat_ws(' ', data->>'what', data->>'host', data->>'disk', data->>'error'), ', ' order by id), '') from outbox`).Scan(&told)
		if err != nil {
			t.Fatal(err)
		}
		return told
	}
	const published = "disk_low media-1 published no room"
	if got := look(); got != published {
		t.Errorf("at first it tells of %s", got)
	}
	a.deaf = a.deaf.Add(-deafFor)
	data = full
	if got := look(); got != "listener_down media-1, disk_low media-1 data no room, "+published {
		t.Errorf("a minute later it tells of %s", got)
	}
	hearing, data = true, nil
	if got := look(); got != published {
		t.Errorf("when it hears again it tells of %s", got)
	}
	hearing = false
	if got := look(); got != published {
		t.Errorf("when it has just ceased to hear it tells of %s", got)
	}
}
