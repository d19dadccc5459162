package daemon

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestCheckNoWorkers_NamesTheWorker(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	st, e := store.New(pool, store.Video()), engine.New(pool, store.Video())
	if err := CheckNoWorkers(t.Context(), st); err != nil {
		t.Error(err)
	}
	for _, test := range []struct {
		worker store.Worker
		want   string
	}{
		{store.Worker{Host: "studio", PID: 7}, "process 7 on studio works on this database; its last heartbeat"},
		{store.Worker{Name: "gpu 1", Host: "h", Principal: "key k (gpus)"}, "the remote worker gpu 1 works for this database; its last"},
	} {
		id, err := e.RegisterWorker(t.Context(), test.worker)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckNoWorkers(t.Context(), st); err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%v, want %q", err, test.want)
		}
		if err := e.DeregisterWorker(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIsAlive_AllowsForTheRareHeartbeatsOfALongLease(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{5 * time.Second, store.DefaultLease, time.Hour, 24 * time.Hour} {
		w := store.Worker{Lease: lease, HeartbeatAge: 2 * store.HeartbeatInterval(lease)}
		if !IsAlive(w) {
			t.Errorf("with a lease of %s it is dead %s after its last heartbeat", lease, w.HeartbeatAge)
		}
		if w.HeartbeatAge = max(lease, 31*time.Second); IsAlive(w) {
			t.Errorf("it is alive %s after its last heartbeat", w.HeartbeatAge)
		}
	}
}

// The holder of a work key registers what it likes. It must not keep daemons from starting.
func TestWorkspaceOf_IgnoresWhatRemoteWorkersPublish(t *testing.T) {
	t.Parallel()
	w := store.Worker{Capabilities: json.RawMessage(`{"data_dir_id": "a", "publish_dir_id": "b"}`)}
	if got := WorkspaceOf(w); got != (Workspace{Data: "a", Published: "b"}) {
		t.Errorf("a local worker has %+v", got)
	}
	w.Principal = "key"
	if got := WorkspaceOf(w); got != (Workspace{}) {
		t.Errorf("a remote worker has %+v", got)
	}
}

func TestRelocate_KeepsTheIDOfALocationThatHasTheOtherKind(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	data, published := video.Location{Dir: t.TempDir()}, video.Location{Dir: t.TempDir()}
	if _, err := useLocations(ctx, st, video.Config{DataDir: data.Dir, PublishDir: published.Dir}); err != nil {
		t.Fatal(err)
	}
	r := video.Relocation{video.DataContent: {From: data, To: published}}
	if err := Relocate(ctx, st, r, nil); err != nil {
		t.Fatal(err)
	}
	for kind, at := range map[video.ContentKind]video.Location{video.DataContent: published, video.PublishContent: published} {
		if err := CheckLocation(ctx, st, kind, at); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if err := CheckLocation(ctx, st, video.DataContent, data); err == nil {
		t.Error("the old location is accepted")
	}
}
