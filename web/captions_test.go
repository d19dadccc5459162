package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/media/captions"
	"github.com/cuelight/cuelight/store"
)

func TestCaptions_AreAttachedListedAndRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	task := b.submit("/film.mp4")
	all := api + "/tasks/" + task.String() + "/captions"
	const srt = "1\n00:00:01,000 --> 00:00:02,000\nHallo\n"
	add := call{method: "POST", path: all + "?file=film.srt&language=de&name=Deutsch&sdh=true", body: srt}
	add.as = readText
	b.do(add).wantProblem(http.StatusForbidden, "forbidden")
	add.as = ""
	type attachment struct {
		ID             store.ID
		Language, Name string
		SDH, Forced    bool
		Cues           int
		AddedBy        string `json:"added_by"`
	}
	var added attachment
	b.do(add).wantStatus(http.StatusCreated, &added)
	if added.Language != "de" || added.Name != "Deutsch" || !added.SDH || added.Forced || added.Cues != 1 || added.AddedBy != "admin" {
		t.Errorf("%+v", added)
	}
	var list struct{ Captions []attachment }
	b.do(call{method: "GET", path: all, as: readText}).wantStatus(http.StatusOK, &list)
	if len(list.Captions) != 1 || list.Captions[0] != added {
		t.Errorf("%+v", list)
	}
	b.do(call{method: "DELETE", path: all + "/" + added.ID.String()}).wantStatus(http.StatusNoContent, nil)
	b.do(call{method: "DELETE", path: all + "/" + added.ID.String()}).wantProblem(http.StatusNotFound, "not-found")
	if got := b.auditActions(); !slices.Equal(got, []string{"captions_remove by admin", "captions_add by admin"}) {
		t.Errorf("audit is %v", got)
	}
}

func TestChapters_AreAttachedReplacedAndRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := api + "/tasks/" + b.submit("/film.mp4").String() + "/captions"
	type attachment struct {
		ID       store.ID
		Chapters bool
		Language string
		Cues     int
	}
	var first, second attachment
	b.post(all+"?file=film.chapters.txt", "00:00 Intro\n00:30 The harbour\n").wantStatus(http.StatusCreated, &first)
	b.post(all+"?file=film.vtt&chapters=true&language=en", "WEBVTT\n\n00:00.000 --> 00:09.000\nIntro\n").
		wantStatus(http.StatusCreated, &second)
	if !first.Chapters || first.Cues != 2 || second != (attachment{first.ID, true, "en", 1}) {
		t.Errorf("%+v, then %+v", first, second)
	}
	var list struct{ Captions []attachment }
	b.do(call{method: "GET", path: all, as: readText}).wantStatus(http.StatusOK, &list)
	if len(list.Captions) != 1 || list.Captions[0] != second {
		t.Errorf("%+v", list)
	}
	b.do(call{method: "DELETE", path: all + "/" + first.ID.String()}).wantStatus(http.StatusNoContent, nil)
}

func TestCaptions_InvalidOnesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := api + "/tasks/" + b.submit("/film.mp4").String() + "/captions"
	for name, c := range map[string]struct{ query, body, want string }{
		"a broken time":    {"file=a.srt&language=de", "1\n00:00:01,000 --> 00:00:0x,000\nHallo\n", `line 2: \"00:00:0x,000\" is not a time`},
		"a broken chapter": {"file=a.chapters.txt", "00:00 Intro\n\n00:3x B\n", `line 3: \"00:3x B\" is not a time and a title`},
		"no language":      {"file=a.srt", "1\n00:00:01,000 --> 00:00:02,000\nHallo\n", "the language is not known"},
		"too many bytes": {
			"file=a.srt&language=de", strings.Repeat("x", captions.MaxBytes+1), "captions have at most 8388608 bytes",
		},
		"a flag that is neither": {"file=a.srt&language=de&sdh=maybe", "", "sdh"},
	} {
		got := b.do(call{method: "POST", path: all + "?" + c.query, body: c.body})
		if got.status/100 != 4 || !strings.Contains(string(got.body), c.want) {
			t.Errorf("%s: status %d, %s; want %s", name, got.status, got.body, c.want)
		}
	}
	b.post(api+"/tasks/00000000-0000-0000-0000-000000000001/captions?file=a.srt&language=de", "1\n00:00:01,000 --> 00:00:02,000\nA\n").
		wantProblem(http.StatusNotFound, "not-found")
}
