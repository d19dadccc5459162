package ui_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
	"github.com/cuelight/cuelight/web/ui"
)

func TestPages_AreValidHTML(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	for _, path := range s.pages() {
		status, body, header := s.get(path)
		if want := map[bool]int{true: 200, false: 404}[path != "/nowhere"]; status != want {
			t.Errorf("%s: status %d", path, status)
			continue
		}
		policy := header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; script-src 'self'; style-src 'self';") || strings.Contains(policy, "blob:") {
			t.Errorf("%s: the policy is %q", path, policy)
		}
		for _, wrong := range htmlProblems(parse(t, body)) {
			t.Errorf("%s: %s", path, wrong)
		}
		if strings.Contains(body, "token=secret") {
			t.Errorf("%s shows the secret of a source", path)
		}
	}
}

func htmlProblems(doc *html.Node) (wrong []string) {
	ids := make(map[string]bool)
	for _, n := range elements(doc) {
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || strings.HasPrefix(a.Val, "javascript:") {
				wrong = append(wrong, fmt.Sprintf("<%s %s=%q>", n.Data, a.Key, a.Val))
			}
		}
		if id := attr(n, "id"); id != "" && n.Data != "symbol" {
			if ids[id] {
				wrong = append(wrong, "duplicate id "+id)
			}
			ids[id] = true
		}
		switch n.DataAtom {
		case atom.Style:
			wrong = append(wrong, "style element")
		case atom.Script:
			if attr(n, "src") == "" || text(n) != "" {
				wrong = append(wrong, "inline script")
			}
		case atom.Img:
			if !has(n, "alt") {
				wrong = append(wrong, "image without alt")
			}
		case atom.Input, atom.Select, atom.Button, atom.Textarea:
			if !hasLabel(doc, n) {
				wrong = append(wrong, fmt.Sprintf("<%s name=%q> has no label", n.Data, attr(n, "name")))
			}
		case atom.Form:
			if attr(n, "method") != "dialog" && (attr(n, "method") == "" || attr(n, "action") == "") {
				wrong = append(wrong, "form without method or action")
			}
		}
	}
	if n := len(elements(doc, atom.H1)); n != 1 {
		wrong = append(wrong, fmt.Sprintf("%d h1 elements", n))
	}
	if n := len(elements(doc, atom.Main)); n != 1 {
		wrong = append(wrong, fmt.Sprintf("%d main elements", n))
	}
	return wrong
}

// Dialogs are confirmation pages that a script loads.
func TestConfirmations_WorkWithoutJavaScript(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	asked := make(map[string]bool)
	for _, path := range s.pages() {
		_, body, _ := s.get(path)
		for _, n := range elements(parse(t, body), atom.A) {
			if has(n, "data-dialog") {
				asked[attr(n, "href")] = true
			}
		}
		for _, n := range elements(parse(t, body), atom.Form) {
			if has(n, "data-post") && attr(n, "method") != "post" {
				t.Errorf("%s: the form of an action has the method %s", path, attr(n, "method"))
			}
		}
	}
	for _, want := range []string{
		"/add", "/pause", "/dead/retry", "/videos/" + s.seeded.Running.String() + "/cancel",
		"/videos/" + s.seeded.Deleted.String() + "/undelete",
	} {
		if !asked[want] {
			t.Errorf("no page links to %s", want)
		}
	}
	for path := range asked {
		status, body, _ := s.get(path)
		forms := 0
		for _, n := range elements(parse(t, body), atom.Form) {
			if attr(n, "method") == "post" && (has(n, "data-post") || attr(n, "action") == path) {
				forms++
			}
		}
		if status != http.StatusOK || forms != 1 || !strings.Contains(body, `id="confirm"`) {
			t.Errorf("%s: status %d, %d forms", path, status, forms)
		}
	}
}

func TestPages_LeaveOutWhatAWorkerHasNotSaid(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	if _, err := s.pool.Exec(t.Context(), "update workers set pid = 0, version = ''"); err != nil {
		t.Fatal(err)
	}
	_, body, _ := s.get("/workers")
	if !strings.Contains(body, `<span class="dim">on media-2.example.org</span>`) || strings.Contains(body, "process 0") {
		t.Errorf("it shows\n%s", body)
	}
}

func TestPages_ShowTheSeededData(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	for path, want := range map[string][]string{
		"/": {
			"Symphony No. 9", "34%", "1.56×", "left", "attempt 3", "after 3 attempts", "storyboard", "Next page",
			"1:23 · 1080 × 1920 · 7.0 KiB · ready after 2 m",
			`<option value="">default profile</option><option>mobile</option>`,
		},
		"/?state=dead": {"flight-3.mov", "encrypted.mp4"},
		"/videos/" + s.seeded.Published.String(): {
			"holiday in norway.mp4", "1920 × 1080, h264, 25 frames/s", "1080p, 720p, 480p", "/play/x/master.m3u8",
			`<a href="/play/x/video.mp4" download>`,
			`data-copy="&lt;iframe src=&#34;/embed/` + s.seeded.Published.String() + `&#34; width=&#34;640&#34; height=&#34;1137&#34;`,
			"the sound ends 0.4 s before the picture", "<dt>Profile</dt><dd>mobile</dd>", "<dt>Settings</dt><dd>quality 28</dd>",
		},
		"/videos/" + s.seeded.Retrying.String(): {
			"av_interleaved_write_frame(): Input/output error", "cuelight retry " + s.seeded.Retrying.String(),
			"attempt 2", "b-wait", "b-failed", "<li>transcode: waited to retry for 20 s</li>",
			"<li>transcode, attempt 1: failed after 21 s on ",
		},
		"/videos/" + s.seeded.Replaced.String():    {"Replaced by", s.seeded.Replacement.String()},
		"/videos/" + s.seeded.Replacement.String(): {"Replaces", s.seeded.Replaced.String()},
		"/workers": {
			"media-1.example.org", "process 4200", "Symphony No. 9", "keynote.mp4", "h264_nvenc", "busy",
			"<b>north 1</b>", "process 4201 on media-2.example.org", "registered by key " + s.seeded.Keys[0].Prefix + " (north)",
			"encoders libx264 h264_nvenc", "labels gpu north", "cue_" + s.seeded.Keys[1].Prefix,
		},
		"/dead": {
			"4 dead tasks", "ffmpeg ended with exit code N: …: No space left on device", "no_space", "flight-1.mov",
			"No space left on device\n[hls @",
		},
		"/videos/" + s.seeded.Deleted.String(): {"<h1>This video is deleted</h1>", "/videos/" + s.seeded.Deleted.String() + "/undelete"},
		"/latency":                             {"Wake latency", "transcode", "<path class=\"p50\""},
		"/profiles": {"<th scope=\"row\">mobile</th><td>renditions 480p 240p, quality 28</td>", "the defaults",
			"cuelight profiles set NAME"},
		"/add": {`<option value="">default</option><option>mobile</option>`},
	} {
		_, body, _ := s.get(path)
		for _, w := range want {
			if !strings.Contains(body, w) {
				t.Errorf("%s does not show %q", path, w)
			}
		}
	}
	if _, body, _ := s.get("/?state=dead"); strings.Contains(body, "lecture") {
		t.Error("the filter shows other videos than dead ones")
	}
	status, _, header := s.get("/?q=" + s.seeded.Dead.String())
	if status != 200 || header.Get("Location") != "" {
		t.Errorf("a search for an id: status %d", status)
	}
}

func TestWorkersPage_ShowsTheStatesOfWorkKeysToOperators(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	keys := access.NewKeyStore(s.st.DB())
	for _, scope := range []string{"read", "work"} {
		k, _, err := keys.CreateKey(t.Context(), "unlisted "+scope, scope)
		if err == nil && scope == "work" {
			_, err = keys.RevokeKey(t.Context(), k.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, body, _ := s.get("/workers")
	rows := make(map[string]string)
	for _, n := range elements(parse(t, body)) {
		if n.Data == "tr" && strings.HasPrefix(attr(n, "id"), "k-") {
			rows[strings.TrimPrefix(attr(n, "id"), "k-")] = text(n)
		}
	}
	if len(rows) != 3 || strings.Contains(body, "unlisted") {
		t.Errorf("%d keys are shown", len(rows))
	}
	for i, want := range []string{"busy north 1", "offline", "disabled"} {
		row := rows[s.seeded.Keys[i].ID.String()]
		for word := range strings.FieldsSeq(want) {
			if !strings.Contains(row, word) {
				t.Errorf("the row of key %d is %q, without %s", i, row, word)
			}
		}
	}
	reader := newTestSite(t, func(o *ui.Options) { o.Viewer = func(context.Context) ui.Viewer { return ui.Viewer{} } })
	if _, body, _ := reader.get("/workers"); strings.Contains(body, "cue_") {
		t.Error("the page shows keys to a reader")
	}
}

func TestWorkersPage_ShowsStoppedWorkersOnRequest(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	if _, body, _ := s.get("/workers?stopped"); !strings.Contains(body, "No stopped or lost workers.") {
		t.Error("the page shows stopped workers")
	}
	left, lost := s.seeded.Workers[0], s.seeded.Workers[1]
	if err := engine.New(s.st.DB(), s.st.Graph()).DeregisterWorker(t.Context(), left); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.New(s.st.DB(), s.st.Graph()).ExpireWorkers(t.Context(), []store.ID{lost}); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the page shows neither worker", func() bool { // reads are cached
		_, body, _ := s.get("/workers")
		return !strings.Contains(body, left.String()) && !strings.Contains(body, lost.String())
	})
	isShown := func(id store.ID, state string) bool {
		_, body, _ := s.get("/workers?stopped")
		for _, n := range elements(parse(t, body)) {
			if attr(n, "id") == "w-"+id.String() {
				return strings.Contains(text(n), state) && attr(n.Parent, "id") == "stopped"
			}
		}
		return false
	}
	waittest.Until(t, "a worker is shown as stopped", func() bool { return isShown(left, "stopped") })
	waittest.Until(t, "a worker is shown as lost", func() bool { return isShown(lost, "lost") })
}

func TestPages_EscapeHostileText(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	hostile := `/srv/<script>alert(1)</script>"><img src=x onerror=alert(1)><hx-partial hx-target="body">.mp4`
	r, err := s.st.Submit(t.Context(), store.Submission{
		Source: hostile, UserID: hostile, RequestID: hostile, Params: []byte(`{"a": "</code><script>"}`),
		UserContext: []byte(`{"a": "</pre><script>alert(1)</script>"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"/", "/?q=" + url.QueryEscape(hostile), "/?user=" + url.QueryEscape(hostile),
		"/videos/" + r.ID.String(), "/dead?error=" + url.QueryEscape(hostile), "/pause?host=" + url.QueryEscape(hostile),
		"/login?next=" + url.QueryEscape("//evil.example/"), "/videos/" + r.ID.String() + "/cancel",
	} {
		status, body, _ := s.get(path)
		if status != http.StatusOK || strings.Contains(body, "<script>alert") ||
			strings.Contains(body, "<img src=x") || strings.Contains(body, "<hx-partial") ||
			strings.Contains(body, `"//evil.example`) {
			t.Errorf("%s: status %d\n%s", path, status, body)
		}
		for _, wrong := range htmlProblems(parse(t, body)) {
			t.Errorf("%s: %s", path, wrong)
		}
	}
}

func TestVideoPage_ShowsTheContextOfTheSubmitter(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	r, err := s.st.Submit(t.Context(), store.Submission{Source: "/srv/a.mp4", UserContext: []byte(`{"order":17,"a":"<b>"}`)})
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := s.get("/videos/" + r.ID.String())
	for _, want := range []string{
		"{\n  &#34;order&#34;: 17,\n  &#34;a&#34;: &#34;&lt;b&gt;&#34;\n}</pre>", `--context &#39;{&#34;order&#34;:17`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %s:\n%s", want, body)
		}
	}
}

func TestAddresses_StartWithTheBase(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, func(o *ui.Options) { o.BasePath, o.Uploads, o.Logout = "/below", "/below/uploads", "/below/logout" })
	for _, path := range s.pages() {
		_, body, _ := s.get("/below" + path)
		for _, n := range elements(parse(t, body)) {
			for _, name := range []string{"href", "action", "src", "hx-sse:connect"} {
				if v := attr(n, name); strings.HasPrefix(v, "/") && !strings.HasPrefix(v, "/below/") {
					t.Errorf("%s: <%s %s=%q>", path, n.Data, name, v)
				}
			}
		}
	}
	video := "/below/videos/" + s.seeded.Waiting.String()
	status, body := s.post(video+"/cancel", url.Values{"back": {video}})
	if status != 200 || !strings.Contains(body, "The video is cancelled.") {
		t.Errorf("cancel: status %d", status)
	}
}

func TestVideoPage_LimitsTheAttempts(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	worker := s.seeded.Workers[0]
	r, err := s.st.Submit(t.Context(), store.Submission{Source: "/srv/always-fails.mp4", Priority: 9})
	if err != nil {
		t.Fatal(err)
	}
	for range 60 {
		in := engine.ExchangeRequest{
			Worker: worker, FreeSlots: []int{1, 0, 0, 0, 0}, ClaimFrom: []bool{true, false, false, false, false},
		}
		out, err := engine.New(s.st.DB(), s.st.Graph()).Exchange(t.Context(), in)
		if err != nil || len(out.Claims) != 1 || out.Claims[0].Task != r.ID {
			t.Fatalf("claimed %+v, %v", out.Claims, err)
		}
		c := out.Claims[0]
		in.FreeSlots, in.ClaimFrom = make([]int, 5), make([]bool, 5)
		in.Reports = []engine.Report{{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Failed, Error: "no luck"}}
		if _, err := engine.New(s.st.DB(), s.st.Graph()).Exchange(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	_, body, _ := s.get("/videos/" + r.ID.String())
	if n := strings.Count(body, `<li id="a-`); n != 50 || !strings.Contains(body, "10 older attempts") {
		t.Errorf("%d attempts are shown", n)
	}
}
