package daemon

import (
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/inbox"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages/video"
)

// A daemon without a web server is useless to its clients but looks healthy to the
// service manager. So it ends, in order.
func TestDaemon_EndsWhenTheWebServerFails(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	core, logs := observer.New(zap.InfoLevel)
	config := video.Config{DataDir: t.TempDir(), PublishDir: t.TempDir()}
	db, err := (&dbconn.Options{DatabaseURL: pool.Config().ConnString()}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(t.Context(), Options{
		DB: db, Config: config, Inbox: inbox.Options{}, Log: zap.New(core),
		HTTP:   HTTPOptions{Listen: "127.0.0.1:0", ConnectionsPerAddress: 10, MaxUpload: 1 << 20},
		Engine: &Engine{Name: "north 1", Version: "test"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(t.Context()) }()
	waittest.Until(t, "the daemon works", func() bool { return logs.FilterMessage("working").Len() > 0 })
	if err := d.services.listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.HasPrefix(err.Error(), "the web server ended: ") {
		t.Errorf("the daemon ended with %v", err)
	}
	if logs.FilterMessage("stopping: the web server has ended").Len() != 1 {
		t.Errorf("the daemon logged %v", logs.All())
	}
	for _, line := range logs.All() {
		if line.ContextMap()["worker_name"] != "north 1" {
			t.Errorf("a line without the worker's name: %+v", line)
		}
	}
	var name string
	var running int
	row := pool.QueryRow(t.Context(), "select min(name), count(*) filter (where stopped_at is null) from workers")
	if err := row.Scan(&name, &running); err != nil || name != "north 1" || running != 0 {
		t.Errorf("%q is registered, and %d workers run, %v", name, running, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
