package web_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
)

type receipt struct {
	TaskID  store.ID `json:"task_id"`
	Existed bool
}

func TestSubmit_IsIdempotent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := map[string]any{
		"source": "https://u:p@example.com/a.mp4?sig=x", "params": map[string]any{"title": "A"}, "priority": -3,
		"request_id": "r1", "user_id": "u", "user_context": map[string]any{"order": 17},
	}
	var first, again receipt
	got := b.post(api+"/tasks", in).wantStatus(http.StatusCreated, &first)
	if first.Existed || got.header.Get("Location") != api+"/tasks/"+first.TaskID.String() ||
		got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%+v, %v", first, got.header)
	}
	b.post(api+"/tasks", in).wantStatus(http.StatusOK, &again)
	if again.TaskID != first.TaskID || !again.Existed {
		t.Errorf("again: %+v", again)
	}
	task, err := b.Get(t.Context(), first.TaskID)
	if err != nil || task.Priority != -3 || task.UserID != "u" || task.Source != in["source"] ||
		string(task.Params) != `{"title": "A"}` || string(task.UserContext) != `{"order":17}` {
		t.Errorf("%+v, %v", task, err)
	}
	entries, err := operators.Audits(t.Context(), b.pool, 0, 0)
	if err != nil || len(entries) != 1 || entries[0].Actor != "admin" || entries[0].Action != "submit" ||
		entries[0].Target != first.TaskID.String() {
		t.Fatalf("audit is %+v, %v", entries, err)
	}
	if detail := string(entries[0].Detail); strings.Contains(detail, "sig") || strings.Contains(detail, "u:p") ||
		!strings.Contains(detail, "example.com/a.mp4") {
		t.Errorf("audit says %s", detail)
	}
}

// The context has the largest size, and what a JSON library would change.
func TestUserContext_IsInTasksEventsAndStreams(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.openStream("/events/stream", "")
	l.wantEvents("open")
	var r receipt
	text := `{"z":"<1>&\u2028` + "\u2028" + `","a":[1.50,1e3,12345678901234567890123],"b":"`
	text += strings.Repeat("x", store.MaxUserContext-len(text)-2) + `"}`
	b.post(api+"/tasks", `{"source": "/a", "user_context": `+text+`}`).wantStatus(201, &r)
	want := `"user_context":` + text
	at := api + "/tasks/" + r.TaskID.String()
	for _, path := range []string{at, api + "/tasks", api + "/events"} {
		if got := b.get(path).body; !strings.Contains(string(got), want) {
			t.Errorf("%s has no context: %s", path, got)
		}
	}
	if m := l.wantEvents("submitted"); !strings.Contains(m.data, want) {
		t.Errorf("the stream sends %s", m.data)
	}
	b.do(call{method: "DELETE", path: at}).wantStatus(200, nil)
	if got := b.get(api + "/deleted-tasks").body; !strings.Contains(string(got), want) {
		t.Errorf("the deleted task has no context: %s", got)
	}
	for _, wrong := range []any{"text", []int{1}, map[string]string{"a": strings.Repeat("x", store.MaxUserContext)}} {
		b.post(api+"/tasks", map[string]any{"source": "/a", "user_context": wrong}).wantProblem(422, "invalid")
	}
}

func TestSubmit_IsAtomic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tasks := func(sources ...string) map[string]any {
		var list []any
		for _, s := range sources {
			list = append(list, map[string]any{"source": s})
		}
		return map[string]any{"tasks": list}
	}
	var out struct{ Tasks []receipt }
	b.post(api+"/tasks", tasks("/a", "/b", "/c")).wantStatus(http.StatusCreated, &out)
	for i, want := range []string{"/a", "/b", "/c"} {
		if task, err := b.Get(t.Context(), out.Tasks[i].TaskID); err != nil || task.Source != want {
			t.Errorf("%d is %q, %v", i, task.Source, err)
		}
	}
	b.post(api+"/tasks", tasks("/d", "")).wantProblem(http.StatusUnprocessableEntity, "invalid")
	b.post(api+"/tasks", tasks("/d", "nonsense")).wantProblem(http.StatusUnprocessableEntity, "invalid")
	if all, _ := b.List(t.Context(), store.ListQuery{Filter: store.Filter{}}); len(all) != 3 {
		t.Errorf("there are %d tasks", len(all))
	}
	b.post(api+"/tasks", tasks()).wantProblem(http.StatusUnprocessableEntity, "invalid") // null is not a list
	b.post(api+"/tasks", `{"tasks":[]}`).wantProblem(http.StatusBadRequest, "invalid-request")
	b.post(api+"/tasks", `{"tasks":[{"source":"/a"}],"source":"/b"}`).wantProblem(http.StatusBadRequest, "invalid-request")
	if got := b.auditActions(); len(got) != 1 {
		t.Errorf("audit is %v", got)
	}
}

func TestJSON_IsReadStrictly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	deep := strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for name, c := range map[string]struct {
		body   string
		status int
		kind   string
	}{
		"unknown member":   {`{"source":"/a","sourse":"/b"}`, 400, "invalid-request"},
		"twice":            {`{"source":"/a","source":"/b"}`, 400, "invalid-request"},
		"twice within":     {`{"source":"/a","params":{"a":1,"a":2}}`, 400, "invalid-request"},
		"twice but for A":  {`{"source":"/a","Source":"/b"}`, 400, "invalid-request"},
		"another case":     {`{"SOURCE":"/a"}`, 400, "invalid-request"},
		"another s":        {`{"\u017fource":"/a"}`, 400, "invalid-request"},
		"another in tasks": {`{"tasks":[{"source":"/a","sourcE":"/b"}]}`, 400, "invalid-request"},
		"two values":       {`{"source":"/a"}{}`, 400, "invalid-request"},
		"broken off":       {`{"source":"/a"`, 400, "invalid-request"},
		"no JSON":          {`source=/a`, 400, "invalid-request"},
		"empty":            {``, 415, "unsupported-media-type"},
		"too deep":         {`{"source":"/a","params":{"a":` + deep + `}}`, 400, "invalid-request"},
		"wrong type":       {`{"source":7}`, 400, "invalid-request"},
		"priority":         {`{"source":"/a","priority":40000}`, 400, "invalid-request"},
		"no source":        {`{"priority":1}`, 422, "invalid"},
		"zero in source":   {`{"source":"/a\u0000"}`, 422, "invalid"},
		"zero in params":   {`{"source":"/a","params":{"title":"\u0000"}}`, 422, "invalid"},
		"params no object": {`{"source":"/a","params":[]}`, 422, "invalid"},
		"params too large": {`{"source":"/a","params":{"a":"` + strings.Repeat("x", 11<<10) + `"}}`, 422, "invalid"},
		"long source":      {`{"source":"/` + strings.Repeat("x", 3000) + `"}`, 422, "invalid"},
		"too large":        {`{"source":"/` + strings.Repeat("x", 2<<20) + `"}`, 413, "too-large"},
		"time":             {`{"source":"/a","not_before":"soon"}`, 400, "invalid-request"},
		"year 10000":       {`{"source":"/a","not_before":"9999-12-31T23:59:59-01:00"}`, 422, "invalid"},
		"placement":        {`{"source":"/a","placement":{"transcode":{"needs":["gpu"]}}}`, 400, "invalid-request"},
		"placed stage":     {`{"source":"/a","placement":{"transcod":{"requires":["gpu"]}}}`, 422, "invalid"},
		"label":            {`{"source":"/a","placement":{"transcode":{"prefers":["a gpu"]}}}`, 422, "invalid"},
	} {
		header := http.Header{"Content-Type": {"application/json"}}
		if name == "empty" {
			header = http.Header{"Content-Type": {"text/plain"}}
		}
		got := b.do(call{method: "POST", path: api + "/tasks", body: c.body, header: header})
		if got.status != c.status || !strings.Contains(string(got.body), `"urn:cuelight:problem:`+c.kind+`"`) {
			t.Errorf("%s: %d %s", name, got.status, got.body)
		}
	}
	form := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	b.do(call{method: "POST", path: api + "/tasks", body: `{"source":"/a"}`, header: form}).
		wantProblem(415, "unsupported-media-type")
	b.post(api+"/tasks", `{"source":"/a","params":null,"not_before":null}`).wantStatus(http.StatusCreated, nil)
	b.post(api+"/tasks", `{"source":"/a","params":{"custom":{"a":1,"A":2,"b":{"C":3}}}}`).wantStatus(http.StatusCreated, nil)
}

func TestSubmit_StoresThePlacement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const placement = `{"transcode":{"requires":["north"],"prefers":["h264_nvenc"],"wait_s":300}}`
	var created struct {
		ID string `json:"task_id"`
	}
	b.post(api+"/tasks", `{"source":"/a","placement":`+placement+`}`).wantStatus(http.StatusCreated, &created)
	var task struct{ Placement map[string]store.Placement }
	b.get(api+"/tasks/"+created.ID).wantStatus(http.StatusOK, &task)
	p := task.Placement["transcode"]
	if len(p.Requires) != 1 || p.Requires[0] != "north" || len(p.Prefers) != 1 || p.Prefers[0] != "h264_nvenc" || p.Wait != 5*time.Minute {
		t.Errorf("the placement is %+v", task.Placement)
	}
}

func TestSubmit_LimitsTheTasksOfAUserPerMinute(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.MaxSubmissionsPerUser = 3 })
	task := func(user string) map[string]any {
		return map[string]any{"source": "https://example.org/a.mp4", "user_id": user}
	}
	many := func(users ...string) map[string]any {
		var tasks []any
		for _, user := range users {
			tasks = append(tasks, task(user))
		}
		return map[string]any{"tasks": tasks}
	}
	b.post(api+"/tasks", many("anna", "anna", "max")).wantStatus(201, nil)
	refused := b.post(api+"/tasks", many("max", "anna", "anna"))
	refused.wantProblem(429, "too-many-submissions")
	if after, err := strconv.Atoi(refused.header.Get("Retry-After")); err != nil || after < 1 || after > 60 {
		t.Errorf("Retry-After is %q", refused.header.Get("Retry-After"))
	}
	b.post(api+"/tasks", task("anna")).wantStatus(201, nil)
	b.post(api+"/tasks", task("anna")).wantProblem(429, "too-many-submissions")
	b.post(api+"/tasks", task("")).wantStatus(201, nil)
	b.post(api+"/tasks", many("zoe", "zoe", "zoe", "zoe")).wantProblem(429, "too-many-submissions")
}

func TestSubmit_LocalFilesRequireAdmin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := b.key("submit")
	for source, want := range map[string][2]int{
		"https://example.com/a.mp4": {201, 201},
		"/etc/passwd":               {201, 403},
		"file:///etc/passwd":        {201, 403},
		"FILE:///etc/passwd":        {201, 403},
		"a.mp4":                     {422, 422},
		"ftp://example.com/a":       {422, 422},
		"https:///a":                {422, 422},
	} {
		for i, as := range []string{adminText, key} {
			got := b.do(call{method: "POST", path: api + "/tasks", body: map[string]string{"source": source}, as: as})
			if got.status != want[i] {
				t.Errorf("%s by %s: %d, want %d", source, []string{"admin", "submit"}[i], got.status, want[i])
			}
		}
	}
}

func TestSubmit_KeepsTheTraceparent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var got receipt
	header := http.Header{"Traceparent": {parent}, "Content-Type": {"application/json"}}
	b.do(call{method: "POST", path: api + "/tasks", body: `{"source":"/a"}`, header: header}).wantStatus(201, &got)
	var kept *string
	read := func() string {
		row := b.pool.QueryRow(t.Context(), "select traceparent from tasks where id = $1", got.TaskID)
		if err := row.Scan(&kept); err != nil {
			t.Fatal(err)
		}
		if kept == nil {
			return ""
		}
		return *kept
	}
	if read() != parent {
		t.Errorf("the stored traceparent is %q", read())
	}
	header.Set("Traceparent", "nonsense")
	b.do(call{method: "POST", path: api + "/tasks", body: `{"source":"/b"}`, header: header}).wantStatus(201, &got)
	if read() != "" {
		t.Errorf("the stored traceparent is %q", read())
	}
}

type page struct {
	Tasks []struct {
		TaskID store.ID `json:"task_id"`
		Source string
		Status string
	}
	Next string
}

func TestTasks_AreListedByPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 7 {
		s := store.Submission{Source: fmt.Sprint("/v", i), UserID: "ü&=", RequestID: fmt.Sprint("r", i)}
		if _, err := b.Submit(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	b.submit("/other")
	var seen []string
	at := api + "/tasks?limit=3&user_id=%C3%BC%26%3D"
	for at != "" {
		var p page
		got := b.get(at).wantStatus(200, &p)
		for _, task := range p.Tasks {
			seen = append(seen, task.Source)
		}
		if link := got.header.Get("Link"); (p.Next != "") != (link == "<"+p.Next+`>; rel="next"`) {
			t.Errorf("link is %q, next %q", link, p.Next)
		}
		at = p.Next
	}
	if want := []string{"/v6", "/v5", "/v4", "/v3", "/v2", "/v1", "/v0"}; !slices.Equal(seen, want) {
		t.Errorf("listed %v", seen)
	}
	for q, want := range map[string]int{
		"status=pending": 8, "status=dead": 0, "stage=ingest&stage_status=pending": 8, "request_id=r3": 1,
		"source=v": 7, "error=x": 0, "": 8,
	} {
		var p page
		if b.get(api+"/tasks?"+q).wantStatus(200, &p); len(p.Tasks) != want {
			t.Errorf("%s: %d tasks, want %d", q, len(p.Tasks), want)
		}
	}
	for q, kind := range map[string]string{
		"statsu=dead": "invalid-request", "status=deda": "invalid-request", "status=dead&status=pending": "invalid-request",
		"stage=ingest": "invalid-request", "stage_status=dead": "invalid-request", "stage=x&stage_status=dead": "invalid",
		"limit=0": "invalid-request", "limit=1001": "invalid-request", "limit=x": "invalid-request",
		"source=%00": "invalid-request", "source=%ff": "invalid-request", "source=%zz": "invalid-request",
		"after=x": "invalid-request", "a;b": "invalid-request",
	} {
		if got := b.get(api + "/tasks?" + q); !strings.Contains(string(got.body), "urn:cuelight:problem:"+kind+`"`) {
			t.Errorf("%s: %d %s", q, got.status, got.body)
		}
	}
}

func TestTask_IsShownWithItsHistory(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit("https://user:secret@example.com/a.mp4?token=secret")
	b.failTask(id)
	var full struct {
		page
		Source   string
		Status   string
		Stages   []struct{ Stage, Status string }
		History  []struct{ Stage, Outcome, Error, Host string }
		Warnings []string
	}
	b.get(api+"/tasks/"+id.String()).wantStatus(200, &full)
	if full.Warnings == nil || len(full.Warnings) != 0 {
		t.Errorf("warnings %#v; want an empty list", full.Warnings)
	}
	if full.Status != "dead" || len(full.Stages) != 5 || len(full.History) != 1 ||
		full.History[0].Error != "disk 7 broke" || full.History[0].Host != "studio" {
		t.Errorf("%+v", full)
	}
	if !strings.Contains(full.Source, "token=secret") {
		t.Errorf("the admin sees %s", full.Source)
	}
	for _, path := range []string{api + "/tasks/" + id.String(), api + "/tasks"} {
		got := b.do(call{method: "GET", path: path, as: readText}).wantStatus(200, nil)
		if strings.Contains(string(got.body), "secret") {
			t.Errorf("a reader sees %s", got.body)
		}
	}
	for source, want := range map[string]int{"token=sec": 0, "user:": 0, "example.com/a": 1} {
		var p page
		b.do(call{method: "GET", path: api + "/tasks?source=" + url.QueryEscape(source), as: readText}).wantStatus(200, &p)
		if len(p.Tasks) != want {
			t.Errorf("a reader finds %d tasks by %q, want %d", len(p.Tasks), source, want)
		}
	}
	b.get(api+"/tasks/"+store.ID{1}.String()).wantProblem(404, "not-found")
	b.get(api+"/tasks/nonsense").wantProblem(404, "not-found")
}

func TestTasks_AreRetriedCancelledAndOverridden(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dead, waiting := b.submit("/a"), b.submit("/b")
	b.failTask(dead)
	at := func(id store.ID, verb string) string { return api + "/tasks/" + id.String() + "/" + verb }

	var task struct{ Status string }
	b.post(at(dead, "retry"), nil).wantStatus(200, &task)
	if task.Status != "pending" {
		t.Errorf("after a retry it is %s", task.Status)
	}
	b.post(at(waiting, "retry"), map[string]string{"from": "ingest"}).wantStatus(200, nil)
	b.post(at(waiting, "retry"), map[string]string{"from": "nonsense"}).wantProblem(422, "invalid")
	b.post(at(store.ID{1}, "retry"), nil).wantProblem(404, "not-found")
	b.post(at(waiting, "cancel"), nil).wantStatus(200, &task)
	if task.Status != "cancelled" || b.status(waiting) != "cancelled" {
		t.Errorf("after a cancel it is %s", task.Status)
	}
	b.post(at(waiting, "cancel"), `{"why":"x"}`).wantProblem(400, "invalid-request")

	var by receipt
	b.post(at(dead, "override"), map[string]any{"source": "/c", "other_task_ids": []any{waiting}}).wantStatus(201, &by)
	for _, id := range []store.ID{dead, waiting} {
		if task, err := b.Get(t.Context(), id); err != nil || task.OverriddenBy != by.TaskID {
			t.Errorf("replaced by %s, %v", task.OverriddenBy, err)
		}
	}
	b.post(at(dead, "retry"), nil).wantProblem(409, "overridden")
	b.post(at(dead, "override"), map[string]any{"source": "/d"}).wantProblem(409, "overridden")
	b.post(at(by.TaskID, "override"), map[string]any{"source": "/d", "other_task_ids": []string{"x"}}).
		wantProblem(400, "invalid-request")
	want := []string{"override by admin", "cancel by admin", "retry by admin", "retry by admin"}
	if got := b.auditActions(); !slices.Equal(got, want) {
		t.Errorf("audit is %v", got)
	}
}

func TestTasks_AreDeletedListedAndRestored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.submit("https://u:p@example.com/a"), b.submit("/b")
	at := func(id store.ID) string { return api + "/tasks/" + id.String() }
	var deleted store.DeletedTask
	b.do(call{method: "DELETE", path: at(first) + "?keep_published=true", as: readText}).wantProblem(403, "forbidden")
	b.do(call{method: "DELETE", path: at(first) + "?keep_published=true"}).wantStatus(200, &deleted)
	if deleted.ID != first || !deleted.KeepPublished || deleted.DeletedBy != "admin" || deleted.PurgeAt != nil {
		t.Errorf("deleted task is %+v", deleted)
	}
	b.do(call{method: "DELETE", path: at(second) + "?purge=true"}).wantStatus(200, &deleted)
	if deleted.PurgeAt == nil {
		t.Errorf("task to be purged is %+v", deleted)
	}
	b.do(call{method: "DELETE", path: at(first)}).wantProblem(404, "not-found")
	b.get(at(first)).wantProblem(404, "not-found")
	var page struct {
		Tasks []store.DeletedTask
		Next  string
	}
	b.do(call{method: "GET", path: api + "/deleted-tasks?limit=1", as: readText}).wantStatus(200, &page)
	if len(page.Tasks) != 1 || page.Tasks[0].ID != second || page.Next == "" {
		t.Errorf("the first page is %+v", page)
	}
	b.do(call{method: "GET", path: page.Next, as: readText}).wantStatus(200, &page)
	if len(page.Tasks) != 1 || page.Tasks[0].ID != first || strings.Contains(page.Tasks[0].Source, "u:p") {
		t.Errorf("the second page is %+v", page)
	}
	b.post(at(first)+"/undelete", nil).wantStatus(200, nil)
	if got := b.status(first); got != "pending" {
		t.Errorf("the restored task is %s", got)
	}
	b.post(at(first)+"/undelete", nil).wantProblem(404, "not-found")
	if got, want := b.auditActions(), []string{"undelete by admin", "delete by admin", "delete by admin"}; !slices.Equal(got, want) {
		t.Errorf("audit is %v", got)
	}
}

func TestRetryTasks_CountsAndRetriesMatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []store.ID
	for i := range 4 {
		ids = append(ids, b.submit(fmt.Sprint("/v", i)))
		if i < 3 {
			b.failTask(ids[i])
		}
	}
	var out struct {
		Matched, Retried, Remaining int

		DryRun bool `json:"dry_run"`
	}
	b.post(api+"/tasks/retry", map[string]any{"dry_run": true}).wantStatus(200, &out)
	if out.Matched != 3 || out.Retried != 0 || out.Remaining != 3 || !out.DryRun || b.status(ids[0]) != "dead" ||
		len(b.auditActions()) != 0 {
		t.Errorf("counted %+v; %v", out, b.auditActions())
	}
	b.post(api+"/tasks/retry", map[string]any{"filter": map[string]string{"source": "/v1"}}).wantStatus(200, &out)
	if out.Matched != 1 || out.Retried != 1 || b.status(ids[0]) != "dead" || b.status(ids[1]) != "pending" {
		t.Errorf("retried %+v", out)
	}
	b.post(api+"/tasks/retry", map[string]any{}).wantStatus(200, &out)
	if out.Retried != 2 || out.Remaining != 0 || b.status(ids[0]) != "pending" {
		t.Errorf("retried %+v", out)
	}
	b.post(api+"/tasks/retry", `{"filter":{"satus":"dead"}}`).wantProblem(400, "invalid-request")
	b.post(api+"/tasks/retry", `{"filter":{"status":"deda"}}`).wantProblem(400, "invalid-request")
	b.post(api+"/tasks/retry", `{"from":"x","dry_run":true}`).wantProblem(422, "invalid")
	b.post(api+"/tasks/retry", nil).wantProblem(415, "unsupported-media-type")
	if got := b.auditActions(); len(got) != 2 {
		t.Errorf("audit is %v", got)
	}
}
