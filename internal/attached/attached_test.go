package attached_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

const srt = "1\n00:00:01,000 --> 00:00:02,000\nHallo\n\n2\n00:00:03,000 --> 00:00:04,000\nWelt\n"

func setup(t *testing.T) (*store.Store, store.ID) {
	t.Helper()
	g := store.Video()
	st := store.New(pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL)), g)
	r, err := st.Submit(t.Context(), store.Submission{Source: "/a.mp4"})
	if err != nil {
		t.Fatal(err)
	}
	return st, r.ID
}

func TestCaptions_AreListedReadAndRemoved(t *testing.T) {
	t.Parallel()
	st, task := setup(t)
	c := attached.New(st)
	first, err := c.Add(t.Context(), task, "film.en.sdh.srt", []byte(srt), attached.File{Language: "de-de", AddedBy: "ann"})
	if err != nil || first.Language != "de-DE" || first.Cues != 2 || first.ID.IsZero() || first.AddedAt.IsZero() {
		t.Fatalf("%+v %v", first, err)
	}
	if _, err := c.Add(t.Context(), task, "film.vtt", []byte("WEBVTT\n\n00:01.000 --> 00:02.000\nHi\n"),
		attached.File{Language: "en", Name: "English, the songs", Default: true, Forced: true}); err != nil {
		t.Fatal(err)
	}
	all, err := c.List(t.Context(), task)
	if err != nil || len(all) != 2 || all[0] != first || all[1].Name != "English, the songs" || !all[1].Default || !all[1].Forced {
		t.Fatalf("%+v %v", all, err)
	}
	texts, err := c.Contents(t.Context(), task)
	if err != nil || len(texts) != 2 || !texts[0].SDH ||
		!strings.Contains(string(texts[0].WebVTT), "\n00:00:03.000 --> 00:00:04.000\nWelt\n") {
		t.Fatalf("%+v %v", texts, err)
	}
	if err := c.Remove(t.Context(), task, first.ID); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(t.Context(), task, first.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the second removal: %v", err)
	}
	if all, err := c.List(t.Context(), task); err != nil || len(all) != 1 {
		t.Errorf("%+v %v", all, err)
	}
}

func TestChapters_AreOneFilePerTask(t *testing.T) {
	t.Parallel()
	st, task := setup(t)
	c := attached.New(st)
	if _, err := c.Add(t.Context(), task, "a.de.srt", []byte(srt), attached.File{}); err != nil {
		t.Fatal(err)
	}
	first, err := c.Add(t.Context(), task, "film.chapters.txt", []byte("00:00 Intro\n01:00 The harbour\n"), attached.File{AddedBy: "ann"})
	if err != nil || !first.Chapters || first.Cues != 2 || first.String() != "2 chapters" {
		t.Fatalf("%+v %v", first, err)
	}
	second, err := c.Add(t.Context(), task, "b.vtt", []byte("WEBVTT\n\n00:00.000 --> 00:09.000\nA & B\n"),
		attached.File{Chapters: true, Language: "en", AddedBy: "bob"})
	if err != nil || second.ID != first.ID || second.String() != "en, 1 chapter" {
		t.Fatalf("%+v %v; want the id %s", second, err, first.ID)
	}
	all, err := c.List(t.Context(), task)
	if err != nil || len(all) != 2 || all[0].Chapters || all[1] != second {
		t.Errorf("%+v %v; want %+v", all, err, second)
	}
	texts, err := c.Contents(t.Context(), task)
	want := "WEBVTT\n\n00:00:00.000 --> 00:00:09.000\nA &amp; B\n"
	if err != nil || len(texts) != 2 || texts[0].Chapters || !texts[1].Chapters ||
		texts[1].Language != "en" || string(texts[1].WebVTT) != want {
		t.Errorf("%+v %v", texts, err)
	}
	if err := c.Remove(t.Context(), task, second.ID); err != nil {
		t.Error(err)
	}
}

func TestAdd_RefusesWhatCannotBeCaptions(t *testing.T) {
	t.Parallel()
	st, task := setup(t)
	for name, c := range map[string]struct{ file, text, language, want string }{
		"a language that is none": {"a.srt", srt, "german!", "not a BCP 47 tag"},
		"no language":             {"a.srt", srt, "", "the language is not known"},
		"a broken line":           {"a.srt", strings.Replace(srt, "00:00:03,000", "00:0x:03,000", 1), "de", "line 6"},
		"another format":          {"a.pdf", "%PDF", "de", "allowed: .srt"},
		"a broken chapter":        {"a.chapters.txt", "00:00 A\n1 B\n", "", `line 2: "1 B" is not a time and a title`},
		"forced chapters":         {"a.chapters.forced.txt", "00:00 A\n", "", "chapters have no name, and are neither default"},
	} {
		_, err := attached.New(st).Add(t.Context(), task, c.file, []byte(c.text), attached.File{Language: c.language})
		if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s", name, err, c.want)
		}
	}
	_, err := attached.New(st).Add(t.Context(), store.ID{1}, "a.srt", []byte(srt), attached.File{Language: "de"})
	if !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a task that does not exist: %v", err)
	}
}

func TestPrune_DeletesTheCaptionsAndRequestsOfPurgedTasks(t *testing.T) {
	t.Parallel()
	st, kept := setup(t)
	c := attached.New(st)
	tasks := []store.ID{kept}
	for _, source := range []string{"/deleted.mp4", "/purged.mp4"} {
		r, err := st.Submit(t.Context(), store.Submission{Source: source})
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, r.ID)
	}
	for i, task := range tasks {
		if _, err := c.Add(t.Context(), task, "a.srt", []byte(srt), attached.File{Language: "de"}); err != nil {
			t.Fatal(err)
		}
		if err := c.RequestAutomatic(t.Context(), task, "auto"); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			continue
		}
		if err := st.Delete(t.Context(), task, store.DeleteOptions{Purge: i == 2}); err != nil {
			t.Fatal(err)
		}
	}
	if due, err := st.ClaimToPurge(t.Context(), -1); err != nil || len(due) != 1 || due[0].ID != tasks[2] {
		t.Fatal(due, err)
	}
	if err := st.Purge(t.Context(), tasks[2], "/"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		if n, err := c.Prune(t.Context()); err != nil || n != want {
			t.Errorf("%d were deleted, %v; want %d", n, err, want)
		}
	}
	for i, want := range []int{1, 1, 0} {
		if all, err := c.List(t.Context(), tasks[i]); err != nil || len(all) != want {
			t.Errorf("task %d has %d captions, %v; want %d", i, len(all), err, want)
		}
	}
	var requests int
	err := st.DB().QueryRow(t.Context(), "select count(*) from cuelight_automatic_captions").Scan(&requests)
	if err != nil || requests != 2 {
		t.Errorf("%d requests of automatic captions, %v; want 2", requests, err)
	}
}
