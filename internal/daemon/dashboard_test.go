package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web/ui"
)

// identified returns the contexts of requests with the secrets of an admin and of a reader.
func identified(t *testing.T) (admin, reader context.Context) {
	t.Helper()
	var options access.Options
	dir := t.TempDir()
	for name, to := range map[string]*access.Secret{
		"admin": &options.Admin, "read": &options.ReadOnly, "sessions": &options.SessionKey,
	} {
		var err error
		if *to, _, err = access.LoadSecret(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	guard, err := access.New(options)
	if err != nil {
		t.Fatal(err)
	}
	as := func(name string) (ctx context.Context) {
		secret, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(secret)))
		h := guard.Identify(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() }))
		h.ServeHTTP(httptest.NewRecorder(), r)
		return ctx
	}
	return as("admin"), as("read")
}

// Every action of the dashboard leaves an entry in the audit log, unless it is forbidden
// or fails.
func TestDashboardActions_AreAudited(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	st := store.New(pool, store.Video())
	o := newDashboardActions(st, 0)
	admin, reader := identified(t)

	task := func(ctx context.Context) store.ID {
		t.Helper()
		r, err := st.Submit(ctx, store.Submission{Source: "/films/one.mp4"})
		if err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	old, other := task(t.Context()), task(t.Context())
	var worker store.ID
	row := pool.QueryRow(t.Context(),
		"insert into workers (name, host, pid, version) values ('h', 'h', 1, 'v') returning id")
	if err := row.Scan(&worker); err != nil {
		t.Fatal(err)
	}
	pause := store.Pause{Stage: "transcode", Host: "h"}
	var made store.ID
	key, _, err := access.NewKeyStore(pool).CreateKey(t.Context(), "north", "work")
	if err != nil {
		t.Fatal(err)
	}
	var created access.Key
	var added attached.File
	type entry struct{ action, target, detail string }
	acts := []struct {
		method string
		act    func(ctx context.Context) error
		want   func() entry
	}{
		{"Submit", func(ctx context.Context) error {
			receipts, err := o.Submit(ctx, store.Submission{Source: "https://u:p@example.org/a.mp4?token=sesame"})
			if err == nil {
				made = receipts[0].ID
			}
			return err
		}, func() entry { return entry{"submit", made.String(), `{"source": "https://example.org/a.mp4"}`} }},
		{"Override", func(ctx context.Context) error {
			receipt, err := o.Override(ctx, []store.ID{old}, store.Submission{Source: "/films/two.mp4"})
			made = receipt.ID
			return err
		}, func() entry {
			return entry{
				"override", old.String(),
				`{"by": "` + made.String() + `", "tasks": ["` + old.String() + `"], "source": "/films/two.mp4"}`,
			}
		}},
		{"Cancel", func(ctx context.Context) error { return o.Cancel(ctx, other) },
			func() entry { return entry{"cancel", other.String(), `{}`} }},
		{"Retry", func(ctx context.Context) error { return o.Retry(ctx, other, ops.RetryOptions{From: "ingest"}) },
			func() entry { return entry{"retry", other.String(), `{"from": "ingest"}`} }},
		{"RetryFresh", func(ctx context.Context) error {
			return o.Retry(ctx, other, ops.RetryOptions{From: "ingest", Fresh: true})
		},
			func() entry { return entry{"retry", other.String(), `{"from": "ingest", "fresh": true}`} }},
		{"RetryDead", func(ctx context.Context) error {
			_, err := o.RetryDead(ctx, report.DeadFilter{Stage: "ingest", Source: "token=sesame"}, store.RetryAllOptions{})
			return err
		}, func() entry { return entry{action: "retry_dead", detail: "…"} }},
		{"Delete", func(ctx context.Context) error {
			_, err := o.Delete(ctx, other, store.DeleteOptions{KeepPublished: true})
			return err
		}, func() entry { return entry{"delete", other.String(), `{"keep_published": true}`} }},
		{"Undelete", func(ctx context.Context) error { return o.Undelete(ctx, other) },
			func() entry { return entry{"undelete", other.String(), `{}`} }},
		{"Edit", func(ctx context.Context) error { return o.Edit(ctx, other, video.Edit{Visibility: new("public")}) },
			func() entry { return entry{"task_edited", other.String(), `{"visibility": "public"}`} }},
		{"Pause", func(ctx context.Context) error { return o.Pause(ctx, pause) },
			func() entry { return entry{"pause", "stage transcode on host h", `{}`} }},
		{"Resume", func(ctx context.Context) error { return o.Resume(ctx, pause) },
			func() entry { return entry{"resume", "stage transcode on host h", `{}`} }},
		{"CreateKey", func(ctx context.Context) error {
			var err error
			created, _, err = o.CreateKey(ctx, "attic", "work")
			return err
		}, func() entry { return entry{"key_create", created.Prefix, `{"name": "attic", "scope": "work"}`} }},
		{"DisableKey", func(ctx context.Context) error { _, err := o.DisableKey(ctx, key.ID); return err },
			func() entry { return entry{"key_disable", key.Prefix, `{"name": "north"}`} }},
		{"EnableKey", func(ctx context.Context) error { _, err := o.EnableKey(ctx, key.ID); return err },
			func() entry { return entry{"key_enable", key.Prefix, `{"name": "north"}`} }},
		{"AddCaptions", func(ctx context.Context) (err error) {
			added, err = o.AddCaptions(ctx, other, "a.de.srt", []byte("1\n00:00:01,000 --> 00:00:02,000\nA\n"), attached.File{})
			return err
		}, func() entry {
			return entry{"captions_add", other.String(), `{"captions": "` + added.ID.String() + `", "language": "de"}`}
		}},
		{"RemoveCaptions", func(ctx context.Context) error { return o.RemoveCaptions(ctx, other, added.ID) },
			func() entry {
				return entry{"captions_remove", other.String(), `{"captions": "` + added.ID.String() + `"}`}
			}},
		{"DrainWorker", func(ctx context.Context) error { return o.DrainWorker(ctx, worker) },
			func() entry { return entry{"drain", worker.String(), `{}`} }},
	}
	audit := func() []operators.AuditEntry {
		t.Helper()
		all, err := operators.Audits(t.Context(), st.DB(), 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	known := make(map[string]bool)
	for _, a := range acts {
		known[a.method] = true
		before := len(audit())
		if err := a.act(reader); !errors.Is(err, ui.ErrForbidden) {
			t.Errorf("%s by a reader: %v", a.method, err)
		}
		if n := len(audit()); n != before {
			t.Errorf("%s left an entry although it was forbidden", a.method)
		}
		if err := a.act(admin); err != nil {
			t.Errorf("%s: %v", a.method, err)
			continue
		}
		all := audit()
		if len(all) != before+1 {
			t.Errorf("%s left %d entries", a.method, len(all)-before)
			continue
		}
		e, want := newest(all), a.want()
		if e.Actor != "admin" || e.Action != want.action || e.Target != want.target || !sameDetail(t, e.Detail, want.detail) {
			t.Errorf("%s left %+v, %s; want %+v", a.method, e, e.Detail, want)
		}
		if text := string(e.Detail); strings.Contains(text, "sesame") {
			t.Errorf("%s left a secret: %s", a.method, text)
		}
	}
	for m := range reflect.TypeFor[ui.Actions]().Methods() {
		if !known[m.Name] {
			t.Errorf("the test does not cover %s", m.Name)
		}
	}
	if err := o.Resume(admin, pause); !errors.Is(err, store.ErrNotFound) || newest(audit()).Action != "drain" {
		t.Errorf("resume without a pause: %v, and the last entry is %+v", err, newest(audit()))
	}
}

func newest(all []operators.AuditEntry) (last operators.AuditEntry) {
	for _, e := range all {
		if e.ID > last.ID {
			last = e
		}
	}
	return last
}

// sameDetail compares objects; a text that is no object must be part of the detail.
func sameDetail(t *testing.T, got json.RawMessage, want string) bool {
	t.Helper()
	if !strings.HasPrefix(want, "{") {
		return strings.Contains(string(got), want)
	}
	var a, b any
	if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(a, b)
}

func TestDashboard_ShowsProfilesAndSettings(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	for name, definition := range map[string]string{"web": `{"quality": 30}`, "archive": `{"preset": "slow"}`} {
		if _, err := profiles.New(st).Set(t.Context(), name, []byte(definition), "ann"); err != nil {
			t.Fatal(err)
		}
	}
	all, err := dashboardProfiles(st)(t.Context())
	got := ""
	for _, p := range all {
		if p.UpdatedAt != nil || p.Name == "default" { // the others are built in
			got += p.Name + ": " + p.Settings + "; "
		}
	}
	if want := "default: ; archive: preset slow; web: quality 30; "; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	admin, _ := identified(t)
	receipts, err := newDashboardActions(st, 0).Submit(admin, store.Submission{Source: "/a.mp4", Params: []byte(`{"profile": "web"}`)})
	if err != nil {
		t.Fatal(err)
	}
	task, err := st.Get(t.Context(), receipts[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if profile, settings := dashboardSettings(task); profile != "web" || settings != "quality 30" {
		t.Errorf("the task has the profile %q and the settings %q", profile, settings)
	}
}
