package main

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/metrics/health"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// Where no notification can ever come through, it is no alarm that none does.
func TestNoAlarmIsRaisedForWhatAPoolerNeverLetsThrough(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "host=127.0.0.1 port=1") // connects to nothing
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	d := &daemon{
		db:  &database{pool: pool, store: store.New(pool, store.Video())},
		log: zap.NewNop(), engine: &engine{abort: make(chan struct{})},
	}
	b, err := d.standBeside(t.Context(), &frontOptions{webhookAllow: new([]string)}, video.Config{DataDir: t.TempDir(), PublishDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if b.abort == nil {
		t.Error("a second signal does not reach it")
	}
	if b.alarms.hearing() {
		t.Error("a daemon that hears nothing is not alarmed")
	}
	d.db.sessions.pooled.Store(true)
	if !b.alarms.hearing() {
		t.Error("a daemon behind a pooler is alarmed")
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
