package ui_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web/ui"
)

func (s *testSite) status(id store.ID) store.Status {
	s.t.Helper()
	task, err := s.st.Get(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return task.Status
}

func TestActions_RedirectToAPageWithTheResult(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	waiting := s.seeded.Waiting
	page, published := "/videos/"+waiting.String(), "/videos/"+s.seeded.Published.String()
	for _, c := range []struct {
		path string
		form url.Values
		want string
	}{
		{page + "/cancel", url.Values{"back": {page}}, "The video is cancelled."},
		{page + "/retry", url.Values{"back": {page}}, "Retrying the failed stages."},
		{page + "/retry", url.Values{"back": {page}, "from": {"ingest"}}, "Retrying from ingest."},
		{page + "/override", url.Values{"source": {" /srv/better.mp4 "}, "back": {page}}, "Replaced with “better.mp4”."},
		{"/add", url.Values{"source": {"/srv/new.mp4"}}, "Added “new.mp4”."},
		{"/pause", url.Values{"stage": {"transcode"}, "back": {"/workers"}}, "Paused: transcode on all hosts."},
		{"/resume", url.Values{"stage": {"transcode"}, "back": {"/workers"}}, "Resumed: transcode on all hosts."},
		{
			"/workers/" + s.seeded.Workers[0].String() + "/drain", url.Values{"back": {"/workers"}},
			"The worker stops when its running attempts have finished.",
		},
		{"/keys/" + s.seeded.Keys[1].ID.String() + "/disable", url.Values{"back": {"/workers"}}, "Disabled: south."},
		{"/keys/" + s.seeded.Keys[1].ID.String() + "/enable", url.Values{"back": {"/workers"}}, "Enabled: south."},
		{"/dead/retry", url.Values{"task": {s.seeded.Dead.String()}, "back": {"/dead"}}, "Retrying 1 video."},
		{"/dead/retry", url.Values{"all": {"1"}, "stage": {"transcode"}, "back": {"/dead"}}, "Retrying 2 videos."},
		{published + "/delete", url.Values{"keep_published": {"1"}, "back": {"/"}}, "Deleted “"},
		{published + "/undelete", url.Values{"back": {published}}, "The video is restored."},
	} {
		status, body := s.post(c.path, c.form)
		if status != http.StatusOK || !strings.Contains(body, c.want) {
			t.Errorf("%s: status %d, and the page does not show %q", c.path, status, c.want)
		}
		if _, again, _ := s.get(page); strings.Contains(again, c.want) {
			t.Errorf("%s: the next page shows the message again", c.path)
		}
	}
	if got := s.status(s.seeded.Dead); got == store.StatusDead {
		t.Errorf("the retried video is still %s", got)
	}
	if n, _, err := ui.NewReader(s.st).CountDead(t.Context(), report.DeadFilter{}); err != nil || n != 1 {
		t.Errorf("%d tasks are dead, %v", n, err)
	}
}

func TestConfirmation_HasTheExactNumber(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	groups, err := ui.NewReader(s.st).DeadGroups(t.Context(), report.DeadFilter{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"":                                   "exactly 4 videos",
		"?stage=ingest":                      "exactly 1 video:",
		"?group=" + groups.Largest[0].Key:    "exactly 3 videos",
		"?q=flight-2":                        "exactly 1 video:",
		"?selected=1":                        "No videos are selected",
		"?q=none":                            "None of these videos is dead now",
		"?task=" + s.seeded.Dead.String():    "exactly 1 video:",
		"?task=" + s.seeded.Waiting.String(): "None of these videos is dead now",
	} {
		if _, body, _ := s.get("/dead/retry" + query); !strings.Contains(body, want) {
			t.Errorf("%q: the page does not show %q", query, want)
		}
	}
}

func TestActions_AnswerScriptsWithJSON(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	for path, want := range map[string]int{
		"/videos/" + s.seeded.Waiting.String() + "/cancel":   200,
		"/videos/" + s.seeded.Replaced.String() + "/retry":   409,
		"/videos/00000000-0000-0000-0000-000000000001/retry": 404,
		"/videos/nonsense/retry":                             404,
		"/videos/" + s.seeded.Running.String() + "/retry?x":  422,
		"/dead/retry": 422,
		"/add":        422,
	} {
		form := url.Values{}
		if want == 422 || want == 409 {
			form.Set("from", "lunch")
			if want == 409 {
				form.Set("from", "ingest")
			}
		}
		r, err := http.NewRequest(http.MethodPost, s.url+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Accept", "application/json")
		answer, err := s.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var answered struct {
			OK   bool
			Text string
		}
		err = json.NewDecoder(answer.Body).Decode(&answered)
		answer.Body.Close()
		if err != nil || answer.StatusCode != want || answered.OK != (want == 200) || answered.Text == "" {
			t.Errorf("%s: status %d, %+v, %v; want %d", path, answer.StatusCode, answered, err, want)
		}
	}
}

func TestReadOnlyViewer_SeesNoButtonsAndIsForbidden(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ui.Options){
		"by scope":   func(o *ui.Options) { o.Viewer = func(context.Context) ui.Viewer { return ui.Viewer{Name: "guest"} } },
		"no actions": func(o *ui.Options) { o.Actions = nil },
	} {
		s := newTestSite(t, change)
		for _, path := range s.pages()[:16] {
			_, body, _ := s.get(path)
			if strings.Contains(body, "data-post") || strings.Contains(body, "data-dialog>") ||
				strings.Contains(body, "data-upload") || strings.Contains(body, `form="selection"`) {
				t.Errorf("%s, %s: the page has buttons", name, path)
			}
		}
		video := "/videos/" + s.seeded.Waiting.String()
		for _, path := range []string{
			video + "/cancel", video + "/retry", video + "/override", "/dead/retry", "/pause", "/resume",
			"/workers/" + s.seeded.Workers[0].String() + "/drain", "/add",
			"/keys/create", "/keys/" + s.seeded.Keys[0].ID.String() + "/disable", "/keys/" + s.seeded.Keys[2].ID.String() + "/enable",
		} {
			if status, _, _ := s.get(path); status != http.StatusForbidden {
				t.Errorf("%s: GET %s: status %d", name, path, status)
			}
			if status, _ := s.post(path, url.Values{"all": {"1"}, "source": {"x"}}); status != http.StatusForbidden {
				t.Errorf("%s: POST %s: status %d", name, path, status)
			}
		}
		if got := s.status(s.seeded.Waiting); got != store.StatusPending {
			t.Errorf("%s: the video is %s", name, got)
		}
	}
}

func TestSubmitter_MayOnlyAdd(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, func(o *ui.Options) {
		o.Viewer = func(context.Context) ui.Viewer { return ui.Viewer{Submit: true} }
	})
	if status, body := s.post("/add", url.Values{"source": {"/srv/new.mp4"}}); status != 200 ||
		!strings.Contains(body, "Added “new.mp4”") {
		t.Errorf("POST /add: status %d", status)
	}
	if status, _ := s.post("/pause", nil); status != http.StatusForbidden {
		t.Errorf("POST /pause: status %d", status)
	}
}

// forbiddingActions refuse a submission that the permissions of the viewer allow.
type forbiddingActions struct{ ui.Actions }

func (forbiddingActions) Submit(context.Context, ...store.Submission) ([]store.Receipt, error) {
	return nil, fmt.Errorf("%w: you cannot use files of this host", ui.ErrForbidden)
}

func TestActions_ShowWhyTheyAreForbidden(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, func(o *ui.Options) {
		o.Actions = forbiddingActions{o.Actions}
		o.Viewer = func(context.Context) ui.Viewer { return ui.Viewer{Submit: true} }
	})
	if status, body := s.post("/add", url.Values{"source": {"/etc/passwd"}}); status != http.StatusForbidden ||
		!strings.Contains(body, "You do not have permission: you cannot use files of this host.") {
		t.Errorf("status %d, %s", status, body)
	}
	if _, body, _ := s.get("/add"); strings.Contains(body, "path of a file") {
		t.Error("a viewer without the permission is asked for a path")
	}
}

func TestOverride_KeepsTheParameters(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	r, err := s.st.Submit(t.Context(), store.Submission{
		Source: "/srv/uploads/1/source.mp4", Params: []byte(`{"title": "Holiday"}`), Priority: 7, UserID: "ann",
		UserContext: []byte(`{"order": 17}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	page := "/videos/" + r.ID.String()
	if status, _ := s.post(page+"/override", url.Values{"source": {" "}}); status != http.StatusUnprocessableEntity {
		t.Errorf("an empty source: status %d", status)
	}
	if status, _ := s.post(page+"/override", url.Values{"source": {"/srv/better.mp4"}}); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	old, err := s.st.Get(t.Context(), r.ID)
	if err != nil || old.OverriddenBy.IsZero() {
		t.Fatalf("the replacement is %s, %v", old.OverriddenBy, err)
	}
	by, err := s.st.Get(t.Context(), old.OverriddenBy)
	if err != nil || by.Source != "/srv/better.mp4" || by.Title() != "Holiday" || by.Priority != 7 || by.UserID != "ann" ||
		string(by.UserContext) != `{"order": 17}` {
		t.Errorf("the replacement is %+v, %v", by, err)
	}
	if status, _ := s.post(page+"/override", url.Values{"source": {"/srv/best.mp4"}}); status != http.StatusConflict {
		t.Errorf("a second replacement: status %d", status)
	}
	if _, body, _ := s.get(page); strings.Contains(body, page+"/override") {
		t.Error("the page offers to replace it again")
	}
}

// nextMessage returns the next message of a stream that is not a ping.
func nextMessage(t *testing.T, lines *bufio.Scanner) (event, id, data string) {
	t.Helper()
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			event = value
		case "id":
			id = value
		case "data":
			data += value + "\n"
		case "":
			if event != "ping" {
				return event, id, data
			}
			event, id, data = "", "", ""
		}
	}
	t.Fatalf("the stream ended: %v", lines.Err())
	return "", "", ""
}

// openStream opens a stream for a page with a version. The caller calls end.
func (s *testSite) openStream(query, seen string) (lines *bufio.Scanner, end func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/live?"+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if seen != "" {
		r.Header.Set("Last-Event-ID", seen)
	}
	answer, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if got := answer.Header.Get("Content-Type"); got != "text/event-stream" {
		s.t.Fatalf("the content type is %q", got)
	}
	lines = bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return lines, func() { cancel(); answer.Body.Close() }
}

func TestStream_SendsMissedAndNewChanges(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	lines, end := s.openStream("page=board&for=state%3Dready&at=old", "")
	if event, id, _ := nextMessage(t, lines); event != "open" || id != "old" {
		t.Errorf("the first event is %q, id %q", event, id)
	}
	_, now, data := nextMessage(t, lines)
	if now == "" || !strings.Contains(data, "panel-5.mp4") || strings.Contains(data, "lecture") {
		t.Errorf("the second message is %s", data)
	}
	if _, err := s.st.Submit(t.Context(), store.Submission{Source: "/srv/brand-new.mp4"}); err != nil {
		t.Fatal(err)
	}
	_, newer, data := nextMessage(t, lines)
	if newer == now || !strings.Contains(data, "brand-new.mp4") || strings.Contains(data, "panel-5.mp4") {
		t.Errorf("the message after a change is %s", data)
	}
	end()
	lines, end = s.openStream("page=board&for=state%3Dready&at=old", newer)
	defer end()
	nextMessage(t, lines)
	if err := s.st.Cancel(t.Context(), s.seeded.Waiting); err != nil {
		t.Fatal(err)
	}
	for range 3 { // the overview may change first
		if _, _, data = nextMessage(t, lines); strings.Contains(data, "t-"+s.seeded.Waiting.String()) {
			break
		}
	}
	if !strings.Contains(data, "t-"+s.seeded.Waiting.String()) || strings.Contains(data, "brand-new") {
		t.Errorf("the reconnected page gets %s", data)
	}
}

func TestVendoredFiles_MatchTheirChecksums(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"assets/vendor", "../embed/assets/vendor"} {
		checkVendored(t, dir)
	}
}

func checkVendored(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "VENDOR.json"))
	if err != nil {
		t.Fatal(err)
	}
	var packages []struct {
		Name, Version, License, Integrity string
		Files                             map[string]string
	}
	if err := json.Unmarshal(text, &packages); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"VENDOR.json": true}
	for _, p := range packages {
		if p.Name == "" || p.Version == "" || p.License == "" || !strings.HasPrefix(p.Integrity, "sha512-") {
			t.Errorf("%+v is incomplete", p)
		}
		licensed := false
		for name, want := range p.Files {
			known[name] = true
			licensed = licensed || strings.HasSuffix(name, ".LICENSE")
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Error(err)
			}
			if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != want {
				t.Errorf("%s does not match its checksum in VENDOR.json", name)
			}
		}
		if !licensed {
			t.Errorf("%s has no licence", p.Name)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !known[e.Name()] {
			t.Errorf("VENDOR.json does not list %s", e.Name())
		}
	}
}

func TestAssets_AreCachedByAddress(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	_, body, _ := s.get("/")
	found := false
	for _, n := range elements(parse(t, body)) {
		address := attr(n, "src")
		if address == "" {
			address = attr(n, "href")
		}
		if !strings.HasPrefix(address, "/assets/") {
			continue
		}
		found = true
		status, _, h := s.get(address)
		if status != 200 || !strings.Contains(h.Get("Cache-Control"), "immutable") || h.Get("Content-Type") == "" {
			t.Errorf("%s: %d, %v", address, status, h)
		}
		plain, _, _ := strings.Cut(address, "?")
		if _, _, h := s.get(plain); strings.Contains(h.Get("Cache-Control"), "immutable") {
			t.Errorf("%s without its hash is immutable", plain)
		}
	}
	if !found {
		t.Error("the page has no assets")
	}
}

func TestKeys_AreShownOnceInThePageThatCreatesThem(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	if status, body, _ := s.get("/keys/create"); status != http.StatusOK || !strings.Contains(body, `action="/keys/create"`) {
		t.Errorf("GET: status %d", status)
	}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("the key is in the address") }
	answer, err := s.client.PostForm(s.url+"/keys/create", url.Values{"name": {" attic "}, "scope": {"work"}})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`cue_[a-z2-7]{8}_[A-Za-z0-9_-]{43}`).FindString(string(body))
	if answer.StatusCode != http.StatusOK || key == "" || answer.Header.Get("Cache-Control") != "no-store" ||
		len(answer.Header.Values("Set-Cookie")) > 0 {
		t.Fatalf("status %d, header %v", answer.StatusCode, answer.Header)
	}
	found, err := access.NewKeyStore(s.st.DB()).Keys(t.Context())
	created := found[len(found)-1]
	if err != nil || created.Name != "attic" || created.Scope != "work" || !strings.HasPrefix(key, "cue_"+created.Prefix) {
		t.Errorf("the key is %+v, %v", created, err)
	}
	for _, path := range []string{"/workers", "/keys/create", "/"} {
		if _, body, _ := s.get(path); strings.Contains(body, key) {
			t.Errorf("%s shows the key again", path)
		}
	}
	if _, body, _ := s.get("/workers"); !strings.Contains(body, "attic") {
		t.Error("the page of workers does not show the key's name")
	}
	for name, form := range map[string]url.Values{
		"no name": {"scope": {"work"}}, "no scope": {"name": {"attic"}}, "another scope": {"name": {"attic"}, "scope": {"root"}},
	} {
		if status, body := s.post("/keys/create", form); status != http.StatusUnprocessableEntity || strings.Contains(body, "cue_") {
			t.Errorf("%s: status %d", name, status)
		}
	}
}

func TestAdd_SubmitsTheChosenProfile(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	for source, profile := range map[string]string{"/srv/with.mp4": "mobile", "/srv/without.mp4": ""} {
		if status, body := s.post("/add", url.Values{"source": {source}, "profile": {profile}}); status != http.StatusOK {
			t.Fatalf("status %d: %s", status, body)
		}
		tasks, err := s.st.List(t.Context(), store.ListQuery{Filter: store.Filter{Source: source}})
		if err != nil || len(tasks) != 1 {
			t.Fatalf("%+v, %v", tasks, err)
		}
		want := "{}"
		if profile != "" {
			want = `{"profile": "mobile"}`
		}
		if got := string(tasks[0].Params); got != want {
			t.Errorf("the task has %s, want %s", got, want)
		}
	}
}

// The board is shown also while profiles cannot be read.
func TestBoard_DoesWithoutProfilesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, func(o *ui.Options) {
		o.Profiles = func(context.Context) ([]ui.Profile, error) { return nil, errors.New("no database") }
	})
	if status, body, _ := s.get("/"); status != http.StatusOK || strings.Contains(body, "data-profile") {
		t.Errorf("status %d", status)
	}
	if status, _, _ := s.get("/profiles"); status != http.StatusServiceUnavailable {
		t.Errorf("the page of profiles has the status %d", status)
	}
}
