package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestRegisterWorker_StoresNamePrincipalAndMetadata(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		given, want    store.Worker
		kind, metadata string
	}{
		{store.Worker{Host: "media-1"}, store.Worker{Name: "media-1"}, "local", "{}"},
		{store.Worker{Host: "media\n1" + strings.Repeat("é", 200)},
			store.Worker{Name: "media1" + strings.Repeat("é", 94)}, "local", "{}"},
		{store.Worker{}, store.Worker{Name: "unknown"}, "local", "{}"},
		{store.Worker{Host: "h", Name: "north 1", Principal: "key k3j9x2mq (build server)", Metadata: raw(`{"rack":7}`)},
			store.Worker{Name: "north 1", Principal: "key k3j9x2mq (build server)"}, "remote", `{"rack": 7}`},
	} {
		id, err := b.RegisterWorker(t.Context(), c.given)
		must(t, err)
		all, err := b.Workers(t.Context(), false)
		must(t, err)
		w := all[slices.IndexFunc(all, func(w store.Worker) bool { return w.ID == id })]
		if w.Name != c.want.Name || w.Principal != c.want.Principal || w.Kind() != c.kind || string(w.Metadata) != c.metadata {
			t.Errorf("%+v is stored as %+v, which is %s", c.given, w, w.Kind())
		}
	}
}

func TestRegisterWorker_RefusesInvalidWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	large := func(size int) json.RawMessage { // as PostgreSQL writes it
		return raw(`{"a": "` + strings.Repeat("x", size-len(`{"a": ""}`)) + `"}`)
	}
	if _, err := b.RegisterWorker(t.Context(), store.Worker{Metadata: large(10 << 10)}); err != nil {
		t.Errorf("metadata of 10 KiB: %v", err)
	}
	for name, w := range map[string]store.Worker{
		"a name of 101 characters":    {Name: strings.Repeat("é", 101)},
		"a name with a line break":    {Name: "a\nb"},
		"a name of spaces":            {Name: "  "},
		"a name that is not UTF-8":    {Name: "a\xff"},
		"metadata over 10 KiB":        {Metadata: large(10<<10 + 1)},
		"metadata that become larger": {Metadata: raw(`{"a":1e10240}`)},
		"metadata that are a list":    {Metadata: raw(`[]`)},
		"metadata that are no JSON":   {Metadata: raw(`{`)},
		"capabilities with NUL":       {Capabilities: raw(`{"a":"\u0000"}`)},
	} {
		if _, err := b.RegisterWorker(t.Context(), w); !errors.Is(err, store.ErrInvalidWorker) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := b.queryInt("select count(*) from workers"); n != 1 {
		t.Errorf("%d workers are registered", n)
	}
}

func TestHistory_HasTheWorkersName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, err := b.RegisterWorker(t.Context(), store.Worker{Name: "north 1", Host: "media-1"})
	must(t, err)
	id := b.submit()
	b.completeAll(w, b.claim(w, ingest))
	for _, a := range b.history(id) {
		if a.WorkerName != "north 1" || a.Host != "media-1" {
			t.Errorf("%s was run by %q on %q", a.Stage, a.WorkerName, a.Host)
		}
	}
}

// remoteWorker registers a worker without a session, which has sent a heartbeat.
func (b bundle) remoteWorker() (w store.ID, heartbeat func()) {
	b.t.Helper()
	w, err := b.RegisterWorker(b.t.Context(), store.Worker{Name: "remote", Principal: "key k3j9x2mq (build server)"})
	must(b.t, err)
	heartbeat = func() {
		b.t.Helper()
		_, err := b.HeartbeatRemote(b.t.Context(), engine.RemoteHeartbeat{Workers: []engine.RemoteWorker{{Worker: w}}})
		must(b.t, err)
	}
	heartbeat()
	return w, heartbeat
}

func TestSweep_ExpiresARemoteWorkerAfterItsLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, _ := b.remoteWorker()
	b.setLastHeartbeat(w, "35 s")
	if lost := b.sweepExpired(nil); len(lost) > 0 {
		t.Errorf("expired within its lease: %v", lost)
	}
	b.setLastHeartbeat(w, "37 s")
	if lost := b.sweepExpired(nil); !slices.Equal(lost, []store.ID{w}) {
		t.Errorf("expired workers are %v, want %s", lost, w)
	}
}

// A coordinator that heard of the worker before its connection ended at another one does not
// know that it ended.
func TestHeartbeatRemote_OfBeforeADisconnectDoesNotUndoIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, _ := b.remoteWorker()
	must(t, b.DisconnectWorker(t.Context(), w))
	b.exec(`update workers set disconnected_at = disconnected_at - interval '4 s', heartbeat_at = heartbeat_at - interval '8 s'`)
	heartbeat := func(silence time.Duration) {
		t.Helper()
		_, err := b.HeartbeatRemote(t.Context(), engine.RemoteHeartbeat{
			Workers: []engine.RemoteWorker{{Worker: w, Silence: silence}},
		})
		must(t, err)
	}
	age := func() float64 {
		t.Helper()
		all, err := b.Workers(t.Context(), false)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0].HeartbeatAge.Seconds()
	}
	heartbeat(10 * time.Second)
	if age() < 8 {
		t.Errorf("a request of 10 s ago set the heartbeat to %.1f s ago", age())
	}
	if lost := b.sweepExpired(nil); !slices.Equal(lost, []store.ID{w}) {
		t.Errorf("expired workers are %v, want %s", lost, w)
	}
	b.exec(`update workers set lost_at = null`)
	heartbeat(2 * time.Second) // after the disconnect
	b.setLastHeartbeat(w, "20 s")
	if lost := b.sweepExpired(nil); len(lost) > 0 {
		t.Errorf("a worker that came back expired within its lease: %v", lost)
	}
}

func TestDisconnectWorker_ExpiresTheWorkerAfterTheGrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, heartbeat := b.remoteWorker()
	// Somebody else may hold the lock of any key.
	b.session(0)
	must(t, b.DisconnectWorker(t.Context(), w))
	connected := func() bool {
		t.Helper()
		all, err := b.Workers(t.Context(), false)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0].Connected
	}
	b.setLastHeartbeat(w, "6 s")
	if lost := b.sweepExpired(nil); len(lost) > 0 || connected() {
		t.Errorf("connected %t, expired within the grace: %v", connected(), lost)
	}
	heartbeat()
	b.setLastHeartbeat(w, "8 s")
	if lost := b.sweepExpired(nil); len(lost) > 0 || !connected() {
		t.Errorf("connected %t, expired although a heartbeat followed: %v", connected(), lost)
	}
	must(t, b.DisconnectWorker(t.Context(), w))
	if lost := b.sweepExpired(nil); !slices.Equal(lost, []store.ID{w}) {
		t.Errorf("expired workers are %v, want %s", lost, w)
	}
	if err := b.DisconnectWorker(t.Context(), w); !errors.Is(err, store.ErrWorkerUnknown) {
		t.Errorf("a lost worker: %v", err)
	}
}

// A local worker's key is kept where a heartbeat has none.
func TestHeartbeat_SetsTheSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	for _, c := range []struct {
		in   engine.HeartbeatRequest
		want string
	}{
		{engine.HeartbeatRequest{}, "none"},
		{engine.HeartbeatRequest{Session: 7}, "7"},
		{engine.HeartbeatRequest{}, "7"},
		{engine.HeartbeatRequest{Session: 8}, "8"},
	} {
		c.in.Worker = w
		_, err := b.Heartbeat(t.Context(), c.in)
		must(t, err)
		var got string
		must(t, b.pool.QueryRow(t.Context(), "select coalesce(session::text, 'none') from workers").Scan(&got))
		if got != c.want {
			t.Errorf("after %+v the session is %s, want %s", c.in, got, c.want)
		}
	}
}

func TestWorker_HasOneState(t *testing.T) {
	t.Parallel()
	now, busy := time.Now(), []store.Running{{Stage: "ingest"}}
	for want, workers := range map[string][]store.Worker{
		"busy":     {{Running: busy}},
		"idle":     {{}, {HeartbeatAge: 7 * time.Second}},
		"draining": {{DrainAt: &now}, {DrainAt: &now, Running: busy}},
		"silent":   {{HeartbeatAge: 8 * time.Second, Running: busy, DrainAt: &now}},
		"stopped":  {{StoppedAt: &now, DrainAt: &now, HeartbeatAge: time.Hour}},
		"lost":     {{LostAt: &now, HeartbeatAge: time.Hour}, {LostAt: &now, StoppedAt: &now}},
	} {
		for _, w := range workers {
			w.Lease = store.DefaultLease
			if got := w.State(); got != want {
				t.Errorf("%+v is %s, want %s", w, got, want)
			}
		}
	}
}

func TestWorkerEvents_HaveTheName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, end := range []func(store.ID) error{
		func(w store.ID) error { return b.DeregisterWorker(t.Context(), w) },
		func(w store.ID) error { _, err := b.ExpireWorkers(t.Context(), []store.ID{w}); return err },
		func(w store.ID) error { b.setLastHeartbeat(w, "1 hour"); b.sweepExpired(nil); return nil },
	} {
		w, err := b.RegisterWorker(t.Context(), store.Worker{Name: "north 1", Host: "media-1", PID: 7})
		must(t, err)
		must(t, end(w))
	}
	events, err := b.Events(t.Context(), store.EventQuery{})
	must(t, err)
	var types []string
	for _, e := range events {
		types = append(types, strings.TrimPrefix(string(e.Type), "worker_"))
		var data struct{ Name, Host string }
		must(t, json.Unmarshal(e.Data, &data))
		if data.Name != "north 1" || data.Host != "media-1" {
			t.Errorf("%s has %s", e.Type, e.Data)
		}
	}
	if got := strings.Join(types, " "); got != "started stopped started lost started lost" {
		t.Errorf("events are %s", got)
	}
}

func TestHeartbeatRemote_RenewsAllWorkersAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, _ := b.remoteWorker()
	second, _ := b.remoteWorker()
	locked, _ := b.remoteWorker()
	stopped, _ := b.remoteWorker()
	must(t, b.DeregisterWorker(t.Context(), stopped))
	id := b.submit()
	claims := []engine.Claim{b.claim(first, ingest)}
	must(t, b.DrainWorker(t.Context(), second))
	must(t, b.Pause(t.Context(), store.Pause{Stage: "transcode", Host: "media-1"}))
	must(t, b.Cancel(t.Context(), id))
	for _, w := range []store.ID{first, second, locked} {
		b.setLastHeartbeat(w, "20 s")
	}
	tx, err := b.pool.Begin(t.Context())
	must(t, err)
	defer func() { must(t, tx.Rollback(context.Background())) }()
	_, err = tx.Exec(t.Context(), "select from workers where id = $1 for update", locked)
	must(t, err)

	running := []store.Running{{Task: id, Stage: "ingest", Attempt: 1, Percent: 40}}
	out, err := b.HeartbeatRemote(t.Context(), engine.RemoteHeartbeat{
		Workers: []engine.RemoteWorker{
			{Worker: first, Running: running, Progressed: running}, {Worker: second}, {Worker: locked}, {Worker: stopped},
		},
		Claims: claims,
	})
	must(t, err)
	if want := map[store.ID]bool{first: false, second: true, locked: false}; !maps.Equal(out.Draining, want) {
		t.Errorf("the registered workers are %v, want %v", out.Draining, want)
	}
	if len(out.LostClaims) != 1 || out.LostClaims[0].Token != claims[0].Token || !out.LostClaims[0].Cancelled {
		t.Errorf("the lost claims are %+v", out.LostClaims)
	}
	if len(out.Pauses) != 1 || out.Pauses[0].Stage != "transcode" || out.Pauses[0].Host != "media-1" {
		t.Errorf("the pauses are %+v", out.Pauses)
	}
	all, err := b.Workers(t.Context(), false)
	must(t, err)
	for _, w := range all {
		if renewed := w.HeartbeatAge < 10*time.Second; renewed != (w.ID != locked) {
			t.Errorf("the last heartbeat of %s is %s ago", w.ID, w.HeartbeatAge)
		}
		if (len(w.Running) == 1) != (w.ID == first) {
			t.Errorf("%s runs %+v", w.ID, w.Running)
		}
	}
}
