package profiles_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

func setup(t *testing.T) *store.Store {
	t.Helper()
	g := store.Video()
	return store.New(pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL)), g)
}

func mustSet(t *testing.T, st *store.Store, name, definition string) {
	t.Helper()
	if _, err := profiles.New(st).Set(t.Context(), name, json.RawMessage(definition), "ann"); err != nil {
		t.Fatal(err)
	}
}

func TestProfiles_AreListedWithTheBuiltInOnes(t *testing.T) {
	t.Parallel()
	st := setup(t)
	p := profiles.New(st)
	var builtIn []string
	list := func() (names string) {
		builtIn = nil
		all, err := p.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range all {
			if q.IsBuiltIn() && q.Name != "default" {
				builtIn = append(builtIn, q.Name)
				continue
			}
			names += q.Name + string(q.Definition) + q.UpdatedBy
			if q.IsBuiltIn() {
				names += "built-in"
			}
			names += "|"
		}
		return names
	}
	if got := list(); got != "default{}built-in|" {
		t.Errorf("without profiles: %s", got)
	}
	mustSet(t, st, "web", `{"renditions": ["480p", 1080], "audio": {"loudness": null}}`)
	mustSet(t, st, "archive", `{"quality": "auto"}`)
	if got := list(); got != `archive{"quality": "auto"}ann|default{}built-in|web{"renditions": [1080, 480]}ann|` {
		t.Error(got)
	}
	if !slices.Equal(builtIn, []string{"balanced", "quick", "small"}) {
		t.Errorf("built in are %q", builtIn)
	}
	mustSet(t, st, "small", `{"quality": 33}`)
	if list(); !slices.Equal(builtIn, []string{"balanced", "quick"}) {
		t.Errorf("after one was redefined, built in are %q", builtIn)
	}
	mustSet(t, st, "default", `{"quality": 20}`)
	mustSet(t, st, "web", `{"quality": 30}`)
	if got := list(); got != `archive{"quality": "auto"}ann|default{"quality": 20}ann|small{"quality": 33}ann|web{"quality": 30}ann|` {
		t.Error(got)
	}
	for _, name := range []string{"web", "default", "archive", "small"} {
		if err := p.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
	}
	if got := list(); got != "default{}built-in|" {
		t.Errorf("after all were removed: %s", got)
	}
	if err := p.Remove(t.Context(), "default"); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("remove the built-in profile: %v", err)
	}
	err := p.Remove(t.Context(), "web")
	if !errors.Is(err, store.ErrNotFound) || err.Error() != `there is no profile "web"; existing: balanced, default, quick, small` {
		t.Errorf("remove a profile twice: %v", err)
	}
	for name, definition := range map[string]string{"Web": `{}`, "a": `{"title": "x"}`, "b": `[]`, "c": `{"quality": 1}`} {
		if _, err := p.Set(t.Context(), name, json.RawMessage(definition), ""); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("set %s to %s: %v", name, definition, err)
		}
	}
}

func TestPrepare_CopiesSettingsWhenATaskIsSubmitted(t *testing.T) {
	t.Parallel()
	st := setup(t)
	mustSet(t, st, "web", `{"renditions": [1080], "quality": 30, "requires": ["gpu"]}`)
	plain := store.Submission{Params: []byte(`{ "title": "t" }`)}
	subs := []store.Submission{
		plain, {Params: []byte(`{"profile": "web", "quality": 20}`)}, {Params: []byte(`{"profile": "default"}`)}, {},
	}
	if err := profiles.Prepare(t.Context(), st, subs); err != nil {
		t.Fatal(err)
	}
	if string(subs[0].Params) != string(plain.Params) || subs[3].Params != nil {
		t.Errorf("params without a profile became %s and %s", subs[0].Params, subs[3].Params)
	}
	web, err := video.ParseParams(subs[1].Params)
	if err != nil || web.Profile != "web" || web.ProfileResolvedAt.IsZero() || web.Quality != 20 || len(web.Renditions) != 1 ||
		web.Requires != nil {
		t.Errorf("web: %s, %v", subs[1].Params, err)
	}
	if p := subs[1].Placement["transcode"]; len(p.Requires) != 1 || p.Requires[0] != "gpu" {
		t.Errorf("placement: %+v", subs[1].Placement)
	}
	if named, err := video.ParseParams(subs[2].Params); err != nil || named.Profile != "default" || named.ProfileResolvedAt.IsZero() {
		t.Errorf("default: %s, %v", subs[2].Params, err)
	}

	// A copy of a task's params keeps its settings, whatever becomes of the profile.
	mustSet(t, st, "default", `{"quality": 40}`)
	if err := profiles.New(st).Remove(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	before := string(subs[1].Params)
	if err := profiles.Prepare(t.Context(), st, subs[1:2]); err != nil || string(subs[1].Params) != before {
		t.Errorf("prepared again: %v, %s", err, subs[1].Params)
	}
	redefined := []store.Submission{{Params: []byte(`{"title": "t"}`)}}
	if err := profiles.Prepare(t.Context(), st, redefined); err != nil {
		t.Fatal(err)
	}
	if p, err := video.ParseParams(redefined[0].Params); err != nil || p.Quality != 40 || p.Profile != "default" || p.Title != "t" {
		t.Errorf("the redefined default: %s, %v", redefined[0].Params, err)
	}
}

func TestPrepare_RefusesUnknownProfilesAndParams(t *testing.T) {
	t.Parallel()
	st := setup(t)
	mustSet(t, st, "web", `{}`)
	for params, want := range map[string]string{
		`{"profile": "wep"}`: `params: there is no profile "wep"; existing: balanced, default, quick, small, web`,
		`{"qualty": 1}`:      `params: unknown member "qualty"`,
	} {
		err := profiles.Prepare(t.Context(), st, []store.Submission{{}, {Params: []byte(params)}})
		if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", params, err)
		}
	}
}

// addResult records a completed attempt.
func addResult(t *testing.T, st *store.Store, task store.ID, stage, result string) {
	t.Helper()
	_, err := st.DB().Exec(t.Context(), `
		insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome, result)
		values ($1, gen_random_uuid(), $2, 1, gen_random_uuid(), now(), now(), 'completed', $3::text::jsonb)`, task, stage, result)
	if err != nil {
		t.Fatal(err)
	}
}

func TestSelectRenditions_StoresTheSelectionUntilTheNextRetryFromAStage(t *testing.T) {
	t.Parallel()
	st := setup(t)
	p := profiles.New(st)
	r, err := st.Submit(t.Context(), store.Submission{Source: "/a.mp4", Params: json.RawMessage(`{"title": "A"}`)})
	if err != nil {
		t.Fatal(err)
	}
	wantRefused := func(want, from string, heights ...int) {
		t.Helper()
		_, err := p.SelectRenditions(t.Context(), r.ID, from, heights)
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v; want %q", err, want)
		}
	}
	wantRefused("the task has none yet that could be kept", "", 720)
	if heights, err := p.PossibleRenditions(t.Context(), r.ID); err != nil || len(heights) > 0 {
		t.Errorf("without a transcode %v are possible, %v", heights, err)
	}
	addResult(t, st, r.ID, "ingest", `{"info": {"video": {"width": 1280, "height": 720, "fps": 25}, "audio": []}}`)
	addResult(t, st, r.ID, "transcode", `{"dir": "transcode-0001-aaaaaaaaaa", "output": {}}`)
	wantRefused("1080p cannot be made of this source; possible: 720p, 480p, 360p, 240p", "", 1080)
	wantRefused("cannot be from publish", "publish", 720)
	if heights, err := p.PossibleRenditions(t.Context(), r.ID); err != nil || len(heights) != 4 {
		t.Errorf("%v are possible, %v", heights, err)
	}

	params := func() string {
		task, err := st.Get(t.Context(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		return string(task.Params)
	}
	const selected = `"selected_renditions": {"after": "transcode-0001-aaaaaaaaaa", "renditions": [720, 360]}`
	if from, err := p.SelectRenditions(t.Context(), r.ID, "", []int{360, 720, 360}); err != nil || from != "transcode" {
		t.Errorf("the retry is from %q, %v", from, err)
	}
	if got := params(); !strings.Contains(got, selected) || !strings.Contains(got, `"title": "A"`) {
		t.Errorf("the params are %s", got)
	}
	if _, err := p.SelectRenditions(t.Context(), r.ID, "", nil); err != nil || !strings.Contains(params(), selected) {
		t.Errorf("a retry of what failed leaves the params %s, %v", params(), err)
	}
	if from, err := p.SelectRenditions(t.Context(), r.ID, "ingest", nil); err != nil || from != "ingest" || params() != `{"title": "A"}` {
		t.Errorf("a retry from ingest leaves the params %s, %v", params(), err)
	}
}
