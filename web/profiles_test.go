package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/web"
)

func TestProfiles_AreChangedReadAndApplied(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const all, one = api + "/profiles", api + "/profiles/mobile"
	definition := `{"renditions":["480p",240],"quality":28,"audio":{"bitrate":"96k","loudness":-16},"poster":"25%","requires":["gpu"]}`
	for _, c := range []call{{method: "PUT", path: one, body: definition}, {method: "DELETE", path: one}} {
		c.as = readText
		b.do(c).wantProblem(http.StatusForbidden, "forbidden")
	}
	b.get(one).wantProblem(http.StatusNotFound, "not-found")
	var p struct {
		Name       string
		Definition struct {
			Renditions []int
			Audio      struct{ Bitrate int }
		}
		UpdatedBy string `json:"updated_by"`
	}
	b.do(call{method: "PUT", path: one, body: definition}).wantStatus(http.StatusOK, &p)
	checkRequestAgainstOpenAPI(t, "PUT", one, definition)
	if p.Name != "mobile" || !slices.Equal(p.Definition.Renditions, []int{480, 240}) || p.Definition.Audio.Bitrate != 96000 ||
		p.UpdatedBy != "admin" {
		t.Errorf("%+v", p)
	}
	var list struct{ Profiles []struct{ Name string } }
	b.do(call{method: "GET", path: all, as: readText}).wantStatus(http.StatusOK, &list)
	if len(list.Profiles) != 5 || list.Profiles[1].Name != "default" || list.Profiles[2].Name != "mobile" {
		t.Errorf("%+v", list)
	}
	b.do(call{method: "GET", path: one, as: readText}).wantStatus(http.StatusOK, nil)

	var r receipt
	body := `{"source":"/a.mp4","params":{"title":"T","profile":"mobile","quality":20,"renditions":["1080p"],"custom":{"a":1}}}`
	b.post(api+"/tasks", body).wantStatus(http.StatusCreated, &r)
	checkRequestAgainstOpenAPI(t, "POST", api+"/tasks", body)
	task, err := b.Get(t.Context(), r.TaskID)
	must(t, err)
	if text := string(task.Params); !strings.Contains(text, `"bitrate": 96000`) || !strings.Contains(text, `"quality": 20`) ||
		!strings.Contains(text, `"profile_resolved_at"`) || !slices.Equal(task.Placements()["transcode"].Requires, []string{"gpu"}) {
		t.Errorf("%s, %+v", text, task.Placements())
	}
	b.post(api+"/tasks/"+r.TaskID.String()+"/override", `{"source":"/b.mp4","params":{"profile":"mobile"}}`).wantStatus(http.StatusCreated, &r)
	if task, err = b.Get(t.Context(), r.TaskID); err != nil || !strings.Contains(string(task.Params), `"quality": 28`) {
		t.Errorf("replaced: %s, %v", task.Params, err)
	}

	b.do(call{method: "DELETE", path: one}).wantStatus(http.StatusNoContent, nil)
	b.do(call{method: "DELETE", path: one}).wantProblem(http.StatusNotFound, "not-found")
	b.do(call{method: "DELETE", path: all + "/default"}).wantProblem(http.StatusUnprocessableEntity, "invalid")
	want := []string{"profile_set by admin", "submit by admin", "override by admin", "profile_remove by admin"}
	if got := b.auditActions(); len(got) != len(want) || !containsAll(got, want) {
		t.Errorf("audit is %v", got)
	}
}

func containsAll(list, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(s string) bool { return !slices.Contains(list, s) })
}

func TestProfiles_InvalidOnesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const one = api + "/profiles/web"
	for body, want := range map[string]string{
		`{"title":"a"}`: `profile: unknown member \"title\"; allowed: renditions, codecs`,
		`{"quality":3}`: `profile: quality must be a whole number from 15 (best) to 40, or auto, not 3`,
		`[]`:            `profile: they must be a JSON object`,
	} {
		got := b.do(call{method: "PUT", path: one, body: body}).wantProblem(http.StatusUnprocessableEntity, "invalid")
		if !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	b.do(call{method: "PUT", path: one, body: `{"quality":20,"quality":21}`}).wantProblem(http.StatusBadRequest, "invalid-request")
	b.do(call{method: "PUT", path: api + "/profiles/WEB", body: `{}`}).wantProblem(http.StatusUnprocessableEntity, "invalid")
	for params, want := range map[string]string{
		`{"profile":"web"}`: `params: there is no profile \"web\"; existing: balanced, default, quick, small`,
		`{"qualty":20}`:     `params: unknown member \"qualty\"; allowed: title, description, start, end, profile`,
	} {
		got := b.post(api+"/tasks", `{"tasks":[{"source":"/a"},{"source":"/b","params":`+params+`}]}`).wantProblem(422, "invalid")
		if !strings.Contains(string(got.body), want) {
			t.Errorf("%s: %s", params, got.body)
		}
	}
	if got := b.auditActions(); len(got) != 0 {
		t.Errorf("audit is %v", got)
	}
}

// Pipelines of others have params of their own.
func TestParams_AreFreeWithoutProfiles(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.Profiles = false })
	b.post(api+"/tasks", `{"source":"/a","params":{"chapters":7}}`).wantStatus(http.StatusCreated, nil)
	b.get(api+"/profiles").wantProblem(http.StatusNotFound, "not-found")
}
