package daemon

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/stages/video"
)

func TestDaemon_IsNotIdleDuringUploadsAndDeliveries(t *testing.T) {
	t.Parallel()
	called, release := make(chan struct{}, 1), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		called <- struct{}{}
		<-release
	}))
	defer receiver.Close()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	db, err := (&dbconn.Options{DatabaseURL: pool.Config().ConnString()}).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const idle = 200 * time.Millisecond
	core, logs := observer.New(zap.InfoLevel)
	d, err := New(t.Context(), Options{
		DB: db, Config: video.Config{DataDir: t.TempDir(), PublishDir: t.TempDir()}, Log: zap.New(core),
		HTTP: HTTPOptions{
			Listen: "127.0.0.1:0", NoAuth: true, ConnectionsPerAddress: 10, MaxUpload: 1 << 20,
			WebhookAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		},
		Engine: &Engine{Version: "test"}, UntilIdle: idle,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.services.webhooks.Add(t.Context(), webhook.Settings{URL: receiver.URL, Types: []string{"submitted"}}); err != nil {
		t.Fatal(err)
	}
	// Until the call this upload is open.
	upload := httptest.NewRequest(http.MethodPost, "/api/v1/uploads/", nil)
	upload.Header.Set("Tus-Resumable", "1.0.0")
	upload.Header.Set("Upload-Length", "4")
	created := httptest.NewRecorder()
	d.services.uploads.ServeHTTP(created, upload)
	if created.Code != http.StatusCreated {
		t.Fatalf("%d %s", created.Code, created.Body)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.Run(context.WithoutCancel(t.Context())) }()
	isOn := func(during string) {
		t.Helper()
		select {
		case err := <-ended:
			t.Fatalf("during %s the daemon ended: %v", during, err)
		case <-time.After(10 * idle):
		}
	}
	waittest.Until(t, "the daemon works", func() bool { return logs.FilterMessage("working").Len() > 0 })
	isOn("an upload")
	// It fails at once, and is tried again later.
	if _, err := pool.Exec(t.Context(), `insert into tasks (source) values ('/missing.mp4')`); err != nil {
		t.Fatal(err)
	}
	<-called
	ending := httptest.NewRequest(http.MethodDelete, created.Header().Get("Location"), nil)
	ending.Header.Set("Tus-Resumable", "1.0.0")
	d.services.uploads.ServeHTTP(httptest.NewRecorder(), ending)
	isOn("a delivery")
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if logs.FilterMessage("stopping because there is no work").Len() != 1 {
		t.Errorf("the daemon logged %v", logs.All())
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
