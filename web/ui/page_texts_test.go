package ui_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web/ui"
)

func TestActions_ReportTheActualResult(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	for _, c := range []struct {
		path string
		form url.Values
		want string
	}{
		{"/videos/" + s.seeded.Published.String() + "/cancel", nil, "The video was completed before it could be cancelled."},
		{"/videos/" + s.seeded.Dead.String() + "/cancel", nil, "The video was already dead."},
		{"/videos/" + s.seeded.Published.String() + "/retry", nil, "there is nothing to retry"},
		{"/resume", url.Values{"stage": {"transcode"}}, "Not paused: transcode on all hosts."},
		{
			"/videos/" + s.seeded.Waiting.String() + "/override",
			url.Values{"source": {"/srv/" + strings.Repeat("é", 400) + ".mp4"}}, "Replaced with “ééé",
		},
	} {
		if status, body := s.post(c.path, c.form); status != http.StatusOK || !strings.Contains(body, c.want) {
			t.Errorf("%s: status %d, and the page does not show %q", c.path, status, c.want)
		}
	}
}

func TestVideoPage_ExplainsAVersionThatIsNotFinal(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil) // every video has a playback
	wantNote := func(id store.ID, want string) {
		t.Helper()
		_, body, _ := s.get("/videos/" + id.String())
		if got := strings.Contains(body, "This version") || strings.Contains(body, "This is the"); got != (want != "") ||
			!strings.Contains(body, want) {
			t.Errorf("%s does not show %q", id, want)
		}
	}
	const early = "This version was published early: "
	for id, want := range map[store.ID]string{
		s.seeded.Running: early + "the other renditions are in progress", s.seeded.Dead: early + "the other renditions were not made",
		s.seeded.Published: "",
	} {
		wantNote(id, want)
	}
	s.post("/videos/"+s.seeded.Published.String()+"/retry", url.Values{"from": {"transcode"}})
	wantNote(s.seeded.Published, "This is the previously published version: a new version is in progress.")
	s.post("/videos/"+s.seeded.Published.String()+"/cancel", nil)
	wantNote(s.seeded.Published, "This is the previously published version: the new version was not published.")
}

func TestConfirmation_ShowsTheSameActionAsACommand(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	add := func(sub store.Submission) string {
		r, err := s.st.Submit(t.Context(), sub)
		if err != nil {
			t.Fatal(err)
		}
		return r.ID.String()
	}
	whole := add(store.Submission{
		Source: "/srv/a.mp4", Params: []byte(`{"title": "It's"}`), Priority: -7, UserID: "ann b",
	})
	placed := add(store.Submission{Source: "/srv/a.mp4", Placement: map[string]store.Placement{
		"transcode": {Requires: []string{"north"}, Prefers: []string{"gpu"}, Wait: time.Minute},
	}})
	plain := add(store.Submission{Source: "/srv/a.mp4"})
	odd := add(store.Submission{Source: "/srv/a.mp4", UserID: "a\u202eb"})
	for path, want := range map[string]string{
		"/videos/" + whole + "/override": `cuelight submit --replaces ` + whole +
			` --params '{"title": "It'\''s"}' --priority=-7 '--user=ann b' SOURCE`,
		"/videos/" + placed + "/override": `cuelight submit --replaces ` + placed +
			` --requires=north --prefers=gpu --prefer-wait=1m0s SOURCE`,
		"/videos/" + plain + "/override": `cuelight submit --replaces ` + plain + ` SOURCE`,
		"/videos/" + odd + "/override":   "", // has invisible characters
		"/dead/retry?stage=transcode":    "cuelight retry --all --stage transcode=dead",
		"/dead/retry?q=flight":           "cuelight retry --all --source flight",
		"/dead/retry?error=space":        "", // the command searches the errors of all attempts
	} {
		_, body, _ := s.get(path)
		got := ""
		for _, n := range elements(parse(t, body)) {
			if has(n, "data-copy") {
				got = attr(n, "data-copy")
			}
		}
		if got != want {
			t.Errorf("%s shows %q, want %q", path, got, want)
		}
	}
}

// A reader must not find the hidden parts of a source by searching for them.
func TestSearch_MatchesOnlyVisiblePartsForReaders(t *testing.T) {
	t.Parallel()
	for name, operates := range map[string]bool{"a reader": false, "an operator": true} {
		s := newTestSite(t, func(o *ui.Options) {
			o.Viewer = func(context.Context) ui.Viewer { return ui.Viewer{Name: name, Operate: operates} }
		})
		for part, found := range map[string]bool{"encrypted": true, "token=sec": operates, "ncrypted.mp4?token": operates} {
			asked := url.Values{"q": {part}}.Encode()
			if _, body, _ := s.get("/?" + asked); strings.Contains(body, ">encrypted.mp4<") != found {
				t.Errorf("%s, search for %q: found %t", name, part, !found)
			}
			lines, end := s.openStream("page=board&for="+url.QueryEscape(asked), "")
			nextMessage(t, lines) // hello
			if _, _, data := nextMessage(t, lines); strings.Contains(data, ">encrypted.mp4<") != found {
				t.Errorf("%s, stream of the search for %q: found %t", name, part, !found)
			}
			end()
		}
		// The page of dead tasks ignores the search of a reader.
		for _, part := range []string{"token=sec", "not there"} {
			asked := url.Values{"q": {part}}.Encode()
			_, body, _ := s.get("/dead?" + asked)
			if showsAll := strings.Contains(body, ">4 dead tasks<"); showsAll == operates {
				t.Errorf("%s, search for %q among dead tasks: all shown %t", name, part, showsAll)
			}
		}
	}
}

func TestSearch_FindsAVideoByTheEndOfItsID(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	id := s.seeded.Running.String()
	for _, text := range []string{id, id[len(id)-8:], "…" + id[len(id)-8:]} {
		if _, body, _ := s.get("/?" + url.Values{"q": {text}}.Encode()); !strings.Contains(body, "<h1>Symphony.mkv<") {
			t.Errorf("the search for %q does not lead to the video", text)
		}
	}
	for _, text := range []string{"0123abcd", "lecture", "cafe"} {
		if status, body, _ := s.get("/?" + url.Values{"q": {text}}.Encode()); status != http.StatusOK ||
			!strings.Contains(body, `id="rows"`) {
			t.Errorf("%q is not searched in the sources", text)
		}
	}
}

func TestDeadPage_CountsAVideoWithTwoDeadStagesOnce(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	if _, err := s.pool.Exec(t.Context(), `update tasks set metadata_status = 'dead' where id = $1`,
		s.seeded.Dead); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/": `<b aria-live="polite">4</b> dead`, "/dead": ">4 dead tasks<", "/dead/retry": "exactly 4 videos",
	} {
		if _, body, _ := s.get(path); !strings.Contains(body, want) {
			t.Errorf("%s does not show %q", path, want)
		}
	}
	if _, body, _ := s.get("/dead"); !strings.Contains(body, "5 dead stages, 3 groups") ||
		!strings.Contains(body, "Retry all 4…") {
		t.Error("the page does not show the number of dead stages")
	}
}

func TestPages_OfferUploadsOnlyIfPossible(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ui.Options){
		"a reader":   func(o *ui.Options) { o.Viewer = func(context.Context) ui.Viewer { return ui.Viewer{} } },
		"no uploads": func(o *ui.Options) { o.Uploads = "" },
		"":           func(*ui.Options) {},
	} {
		s := newTestSite(t, change)
		if _, err := s.pool.Exec(t.Context(), `delete from tasks`); err != nil {
			t.Fatal(err)
		}
		if _, body, _ := s.get("/"); strings.Contains(body, "Drop a file here") != (name == "") ||
			!strings.Contains(body, "No videos yet.") {
			t.Errorf("%q: the empty board offers to drop a file: %t", name, name != "")
		}
		if name == "a reader" {
			continue
		}
		if _, body, _ := s.get("/add"); strings.Contains(body, "drop them on the board") != (name == "") {
			t.Errorf("%q: the confirmation offers to drop a file: %t", name, name != "")
		}
	}
}

func TestVideoPage_SaysWhichPlacementNoWorkerMeets(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	r, err := s.st.Submit(t.Context(), store.Submission{
		Source: "/srv/a.mp4", Placement: map[string]store.Placement{"transcode": {Requires: []string{"tpu"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := s.get("/videos/" + r.ID.String())
	for _, want := range []string{"transcode requires tpu", "transcode waits: it requires tpu, and no running worker offers that"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestRetryForm_OffersRenditionsThatCanBeMadeAgain(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, func(o *ui.Options) {
		o.RenditionsOf = func(context.Context, store.ID) ([]int, error) { return []int{720, 360}, nil }
	})
	path := "/videos/" + s.seeded.Published.String() + "/retry"
	_, form, _ := s.get(path)
	for _, want := range []string{`name="rendition" value="720">720p`, `name="rendition" value="360">360p`} {
		if !strings.Contains(form, want) {
			t.Errorf("the form does not have %s", want)
		}
	}
	for value, want := range map[string]string{
		"720": "Making 1 rendition again.", "144": "144p cannot be made of this source; possible: ", "many": "is not a height",
	} {
		if _, body := s.post(path, url.Values{"rendition": {value}, "from": {"ingest"}}); !strings.Contains(body, want) {
			t.Errorf("after %s the page does not show %q", value, want)
		}
	}
}
