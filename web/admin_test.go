package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWorkers_AreListedAndDrained(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, err := engine.New(b.pool, b.Graph()).RegisterWorker(t.Context(), store.Worker{
		Name: "north 1", Host: "studio", PID: 7, Version: "v1", Metadata: []byte(`{"rack":7}`),
		Principal: "key k3j9x2mq (build server)",
	})
	if err != nil {
		t.Fatal(err)
	}
	var out struct {
		Workers []struct {
			ID                           store.ID `json:"worker_id"`
			Host                         string
			PID                          int
			DrainAt                      *string `json:"drain_at"`
			Lease                        float64 `json:"lease_s"`
			Connected                    bool
			Name, Kind, Principal, State string
			Metadata                     struct{ Rack int }
		}
	}
	b.get(api+"/workers").wantStatus(200, &out)
	if len(out.Workers) != 1 || out.Workers[0].ID != id || out.Workers[0].Host != "studio" ||
		out.Workers[0].Lease != 36 || out.Workers[0].DrainAt != nil {
		t.Errorf("%+v", out)
	}
	w := out.Workers[0]
	if got := fmt.Sprint(w.Name, ", ", w.Kind, ", ", w.Principal, ", ", w.State, ", ", w.Metadata.Rack, ", ", w.Connected); got !=
		"north 1, remote, key k3j9x2mq (build server), idle, 7, true" {
		t.Errorf("the worker is %s", got)
	}
	b.post(api+"/workers/"+id.String()+"/drain", nil).wantStatus(http.StatusNoContent, nil)
	if b.get(api+"/workers").wantStatus(200, &out); out.Workers[0].DrainAt == nil {
		t.Errorf("not drained: %+v", out)
	}
	b.post(api+"/workers/"+store.ID{1}.String()+"/drain", nil).wantProblem(404, "not-found")
	if err := engine.New(b.pool, b.Graph()).DeregisterWorker(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for q, want := range map[string]int{"": 0, "?all=false": 0, "?all=true": 1} {
		if b.get(api+"/workers"+q).wantStatus(200, &out); len(out.Workers) != want {
			t.Errorf("%q lists %+v", q, out)
		}
	}
	b.get(api+"/workers?all=yes").wantProblem(400, "invalid-request")
	if got := b.auditActions(); !slices.Equal(got, []string{"drain by admin"}) {
		t.Errorf("audit is %v", got)
	}
}

func TestStoppedWorkers_AreListedByPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	register := func() store.ID {
		id, err := engine.New(b.pool, b.Graph()).RegisterWorker(t.Context(), store.Worker{
			Host: "studio", PID: 7, Version: "v1",
		})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	want := []store.ID{register()}
	for range 5 {
		id := register()
		if err := engine.New(b.pool, b.Graph()).DeregisterWorker(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		want = slices.Insert(want, 1, id)
	}
	var seen []store.ID
	for path := api + "/workers?all=true&limit=2"; path != ""; {
		var page struct {
			Workers []struct {
				ID store.ID `json:"worker_id"`
			}
			Next string
		}
		b.get(path).wantStatus(200, &page)
		for _, w := range page.Workers {
			seen = append(seen, w.ID)
		}
		path = page.Next
	}
	if !slices.Equal(seen, want) {
		t.Errorf("listed %v, want %v", seen, want)
	}
	b.get(api+"/workers?limit=2").wantProblem(400, "invalid-request")
}

func TestPauses_HoldUntilResumed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var out struct {
		Pauses []struct {
			Stage, Host string
			By          string `json:"paused_by"`
		}
	}
	b.post(api+"/pauses", map[string]string{"stage": "transcode", "host": "a b"}).wantStatus(200, &out)
	if len(out.Pauses) != 1 || out.Pauses[0].Stage != "transcode" || out.Pauses[0].Host != "a b" ||
		out.Pauses[0].By != "admin" {
		t.Errorf("%+v", out)
	}
	b.post(api+"/pauses", map[string]string{}).wantStatus(200, nil)
	b.post(api+"/pauses", map[string]string{"stage": "nonsense"}).wantProblem(422, "invalid")
	b.post(api+"/pauses", `{"host":"\u0000"}`).wantProblem(400, "invalid-request")
	b.get(api+"/pauses").wantStatus(200, &out)
	if len(out.Pauses) != 2 {
		t.Errorf("%+v", out)
	}
	var stages struct{ Stages []struct{ Paused bool } }
	if b.get(api+"/stages").wantStatus(200, &stages); !stages.Stages[4].Paused {
		t.Errorf("the stage is not shown as paused: %+v", stages)
	}
	resume := func(q url.Values) testResponse {
		return b.do(call{method: "DELETE", path: api + "/pauses?" + q.Encode()})
	}
	resume(url.Values{"stage": {"transcode"}}).wantProblem(404, "not-found")
	resume(url.Values{"stage": {"transcode"}, "host": {"a b"}}).wantStatus(200, &out)
	resume(nil).wantStatus(200, &out)
	if len(out.Pauses) != 0 {
		t.Errorf("%+v", out)
	}
	if got := b.auditActions(); len(got) != 4 || got[0] != "resume by admin" || got[3] != "pause by admin" {
		t.Errorf("audit is %v", got)
	}
}

func TestStages_ShowTheirCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.failTask(b.submit("/a"))
	b.submit("/b")
	b.submit("/c")
	b.exec("update steps set ready_at = now() - interval '90 s'")
	var out struct {
		Pipeline             string
		Running, Ready, Dead int
		Stages               []struct {
			Stage  string
			Needs  []string
			Ready  int
			Oldest float64 `json:"oldest_ready_s"`
		}
	}
	b.do(call{method: "GET", path: api + "/stages", as: readText}).wantStatus(200, &out)
	if out.Pipeline != "video" || out.Ready != 2 || out.Dead != 1 || len(out.Stages) != 5 ||
		out.Stages[0].Ready != 2 || out.Stages[0].Oldest < 90 {
		t.Errorf("%+v", out)
	}
	if needs := out.Stages[3].Needs; !slices.Equal(needs, []string{"transcode", "metadata"}) {
		t.Errorf("assemble needs %v", needs)
	}
}

func TestKeys_WorkUntilRevoked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var made struct {
		ID     store.ID
		Prefix string
		Key    string
	}
	b.post(api+"/keys", map[string]string{"name": "build", "scope": "submit"}).wantStatus(201, &made)
	b.post(api+"/keys", map[string]any{"name": "build", "scope": "submit", "labels": []string{"gpu"}}).wantProblem(422, "invalid")
	var got receipt
	b.do(call{
		method: "POST", path: api + "/tasks", body: `{"source":"https://example.com/a"}`, as: made.Key,
	}).wantStatus(201, &got)
	var listed struct{ Keys []report.Key }
	list := b.get(api+"/keys").wantStatus(200, &listed)
	if len(listed.Keys) != 1 || listed.Keys[0].State != "valid" {
		t.Errorf("keys are %s", list.body)
	}
	if strings.Contains(string(list.body), made.Key) || !strings.Contains(string(list.body), made.Prefix) ||
		!strings.Contains(string(list.body), "used_at") {
		t.Errorf("keys are %s", list.body)
	}
	b.do(call{method: "DELETE", path: api + "/keys/" + made.ID.String()}).wantStatus(200, nil)
	b.do(call{method: "GET", path: api + "/tasks", as: made.Key}).wantProblem(401, "unauthenticated")
	b.do(call{method: "DELETE", path: api + "/keys/" + store.ID{1}.String()}).wantProblem(404, "not-found")
	b.post(api+"/keys", map[string]string{"name": "", "scope": "read"}).wantProblem(422, "invalid")
	b.post(api+"/keys", map[string]string{"name": "x", "scope": "root"}).wantProblem(422, "invalid")
	want := []string{"key_revoke by admin", "submit by key " + made.Prefix + " (build)", "key_create by admin"}
	if got := b.auditActions(); !slices.Equal(got, want) {
		t.Errorf("audit is %v, want %v", got, want)
	}
}

func TestKeys_AreRefusedWhileDisabled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.key("read")
	prefix, _ := access.KeyPrefix(key)
	var made access.Key
	must(t, b.pool.QueryRow(t.Context(), "select id from cuelight_keys where prefix = $1", prefix).Scan(&made.ID))
	path := api + "/keys/" + made.ID.String()
	use := call{method: "GET", path: api + "/tasks", as: key}
	b.do(use).wantStatus(200, nil)
	b.post(path+"/disable", nil).wantStatus(200, &made)
	if made.DisabledAt == nil {
		t.Errorf("the key is %+v", made)
	}
	b.do(use).wantProblem(401, "unauthenticated")
	b.post(path+"/enable", nil).wantStatus(200, nil)
	b.do(use).wantStatus(200, nil)
	b.do(call{method: "DELETE", path: path}).wantStatus(200, nil)
	b.post(path+"/enable", nil).wantProblem(422, "invalid")
	b.do(use).wantProblem(401, "unauthenticated")
	want := []string{"key_revoke by admin", "key_enable by admin", "key_disable by admin"}
	if got := b.auditActions(); !slices.Equal(got[:3], want) {
		t.Errorf("audit is %v, want %v", got, want)
	}
}

func TestKeys_OfWorkersHaveTheStateOfTheNewest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key, _, err := access.NewKeyStore(b.pool).CreateKey(t.Context(), "north", "work")
	must(t, err)
	path := api + "/keys/" + key.ID.String()
	want := func(state, worker string) {
		t.Helper()
		var out struct{ Keys []report.Key }
		b.get(api+"/keys").wantStatus(200, &out)
		if k := out.Keys[0]; k.State != state || k.WorkerName != worker || (k.WorkerID != nil) != (worker != "") {
			t.Errorf("the key is %+v, want %s of %q", k, state, worker)
		}
	}
	want("offline", "")
	e := engine.New(b.pool, b.Graph())
	var newest store.ID
	for _, name := range []string{"first", "second"} {
		newest, err = e.RegisterWorker(t.Context(), store.Worker{Name: name, Principal: key.PrincipalName()})
		must(t, err)
		_, err = e.RegisterWorker(t.Context(), store.Worker{Name: "local " + name})
		must(t, err)
	}
	want("idle", "second")
	_, err = e.HeartbeatRemote(t.Context(), engine.RemoteHeartbeat{
		Workers: []engine.RemoteWorker{{Worker: newest, Running: []store.Running{{Stage: "ingest"}}}},
	})
	must(t, err)
	want("busy", "second")
	must(t, b.DrainWorker(t.Context(), newest))
	want("draining", "second")
	b.exec("update workers set heartbeat_at = now() - interval '8 s' where id = $1", newest)
	want("silent", "second")
	_, err = e.ExpireWorkers(t.Context(), []store.ID{newest})
	must(t, err)
	want("idle", "first")
	b.post(path+"/disable", nil).wantStatus(200, nil)
	want("disabled", "")
	b.do(call{method: "DELETE", path: path}).wantStatus(200, nil)
	want("revoked", "")
}

func TestAudit_IsListedByPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 5 {
		b.post(api+"/pauses", `{}`).wantStatus(200, nil)
	}
	n := 0
	for at := api + "/audit?limit=2"; at != ""; {
		var page struct {
			Entries []struct{ Action, Target string }
			Next    string
		}
		b.get(at).wantStatus(200, &page)
		n, at = n+len(page.Entries), page.Next
		if page.Entries[0].Target != "everything" {
			t.Errorf("%+v", page)
		}
	}
	if n != 5 {
		t.Errorf("listed %d entries", n)
	}
	b.get(api+"/audit?after=-1").wantProblem(400, "invalid-request")
}

func TestWebhooks_AreManaged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var hook struct {
		ID     store.ID
		Secret string
		Types  []string
		Cool   int `json:"cooldown_s"`
		Format string
	}
	in := map[string]any{
		"url": "https://example.com/hook?token=t", "types": []string{"completed", "alert"}, "cooldown_s": 0,
	}
	b.post(api+"/webhooks", in).wantStatus(201, &hook)
	if !strings.HasPrefix(hook.Secret, "whsec_") || hook.Cool != 0 || len(hook.Types) != 2 || hook.Format != "cuelight" {
		t.Errorf("%+v", hook)
	}
	at := api + "/webhooks/" + hook.ID.String()
	if list := b.get(api+"/webhooks").wantStatus(200, nil); strings.Contains(string(list.body), hook.Secret) {
		t.Errorf("webhooks are %s", list.body)
	}
	secret := hook.Secret
	b.post(at+"/rotate", map[string]int{"overlap_s": 60}).wantStatus(200, &hook)
	if hook.Secret == secret {
		t.Error("the secret is the same")
	}
	b.post(at+"/rotate", map[string]int{"overlap_s": -1}).wantProblem(422, "invalid")
	secret = hook.Secret
	change := func(body string) testResponse { return b.do(call{method: "PATCH", path: at, body: body}) }
	change(`{"types": ["completed"], "cooldown_s": 60, "format": "slack"}`).wantStatus(200, &hook)
	if len(hook.Types) != 1 || hook.Cool != 60 || hook.Format != "slack" || hook.Secret == secret {
		t.Errorf("changed to %+v", hook)
	}
	for _, bad := range []string{
		`{"url": "http://127.0.0.1/"}`, `{"url": ""}`, `{"types": ["nonsense"]}`, `{"cooldown_s": -1}`,
		`{"format": "nonsense"}`,
	} {
		change(bad).wantProblem(422, "invalid")
	}
	b.post(at+"/disable", map[string]string{"reason": "holiday"}).wantStatus(204, nil)
	b.post(at+"/enable", nil).wantStatus(204, nil)
	b.post(at+"/redeliver", nil).wantStatus(200, nil)
	b.exec(`insert into cuelight_deliveries (webhook_id, event_id, type, payload, status)
		select $1, n, 'completed', '{}', 'dead' from generate_series(1, 3) n`, hook.ID)
	var page struct {
		Deliveries []struct{ ID store.ID }
		Next       string
	}
	b.get(api+"/deliveries?status=dead&limit=2&webhook_id="+hook.ID.String()).wantStatus(200, &page)
	if len(page.Deliveries) != 2 || page.Next == "" {
		t.Errorf("%+v", page)
	}
	b.post(api+"/deliveries/"+page.Deliveries[0].ID.String()+"/redeliver", nil).wantStatus(204, nil)
	b.get(page.Next).wantStatus(200, nil)
	b.get(api+"/deliveries?status=lost").wantProblem(400, "invalid-request")
	b.post(at+"/redeliver", nil).wantStatus(200, nil)
	b.do(call{method: "DELETE", path: at}).wantStatus(204, nil)
	b.do(call{method: "DELETE", path: at}).wantProblem(404, "not-found")
	for _, bad := range []string{
		`{"url":"http://127.0.0.1/"}`, `{"url":"https://example.com","types":["nonsense"]}`,
		`{"url":"https://example.com","cooldown_s":-1}`, `{"url":"https://example.com","format":"nonsense"}`,
	} {
		b.post(api+"/webhooks", bad).wantProblem(422, "invalid")
	}
	want := []string{
		"webhook_remove", "webhook_redeliver_dead", "webhook_redeliver", "webhook_redeliver_dead", "webhook_enable",
		"webhook_disable", "webhook_change", "webhook_rotate", "webhook_add",
	}
	for i, got := range b.auditActions() {
		if got != want[i]+" by admin" {
			t.Errorf("audit %d is %s, want %s", i, got, want[i])
		}
	}
}

func TestWebhookTest_SendsAPing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var hook struct{ ID store.ID }
	// A name that never exists; see RFC 6761.
	b.post(api+"/webhooks", map[string]any{"url": "https://receiver.invalid/"}).wantStatus(201, &hook)
	var ping struct{ OK bool }
	if b.post(api+"/webhooks/"+hook.ID.String()+"/test", nil).wantStatus(200, &ping); ping.OK {
		t.Error("the test of an unknown host succeeded")
	}
}
