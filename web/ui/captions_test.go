package ui_test

import (
	"fmt"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/attached"
)

func TestChapters_AreListedByThePlayerAndAttachedByAForm(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	page := "/videos/" + s.seeded.Published.String()
	if _, body, _ := s.get(page); !strings.Contains(body, `data-seek="1.5"><span class="dim">0:01</span> <span>Past the lighthouses`) {
		t.Errorf("the player does not list the chapters\n%s", body)
	}
	var form strings.Builder
	w := multipart.NewWriter(&form)
	_, _ = w.WriteField("chapters", "1"), w.WriteField("back", page) // a Builder returns no errors
	file, err := w.CreateFormFile("file", "film.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = file.Write([]byte("00:00 Intro\n00:30 The harbour\n"))
	_ = w.Close()
	status, body := s.postBody(page+"/captions", w.FormDataContentType(), form.String())
	if status != http.StatusOK || !strings.Contains(body, "Attached: 2 chapters.") {
		t.Errorf("status %d\n%s", status, body)
	}
	if _, body, _ := s.get(page + "/captions"); !strings.Contains(body, "<b>2 chapters</b>") {
		t.Errorf("the form does not list them\n%s", body)
	}
}

func TestCaptions_AreAttachedAndRemovedByForms(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	page := "/videos/" + s.seeded.Published.String()
	if _, body, _ := s.get(page); !strings.Contains(body, page+"/captions") {
		t.Error("the page of the video has no link to its captions")
	}
	upload := func(text string) (int, string) {
		var form strings.Builder
		w := multipart.NewWriter(&form)
		for name, value := range map[string]string{"language": "pt-BR", "name": "Canções", "sdh": "1", "back": page} {
			if err := w.WriteField(name, value); err != nil {
				t.Fatal(err)
			}
		}
		file, err := w.CreateFormFile("file", "film.srt")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = file.Write([]byte(text)) // a Builder returns no errors
		_ = w.Close()
		return s.postBody(page+"/captions", w.FormDataContentType(), form.String())
	}
	// Much larger than other forms may be.
	var long strings.Builder
	for i := range 50 {
		fmt.Fprintf(&long, "1\n00:00:%02d,000 --> 00:00:%02d,900\n%s\n\n", i, i, strings.Repeat("não ", 2000))
	}
	if status, body := upload(long.String()); status != http.StatusOK || !strings.Contains(body, "Attached: pt-BR, 50 cues.") {
		t.Errorf("status %d\n%s", status, body)
	}
	all, err := attached.New(s.st).List(t.Context(), s.seeded.Published)
	if err != nil || len(all) != 1 || all[0].Name != "Canções" || !all[0].SDH || all[0].Default || all[0].AddedBy != "operator" {
		t.Fatalf("%+v, %v", all, err)
	}
	if _, body, _ := s.get(page + "/captions"); !strings.Contains(body, "Canções") || !strings.Contains(body, all[0].ID.String()) {
		t.Errorf("the form does not list them\n%s", body)
	}
	status, body := upload("1\n00:00:01,000\nOi\n")
	if status != http.StatusUnprocessableEntity || !strings.Contains(body, "no text with a time") {
		t.Errorf("a broken file: status %d\n%s", status, body)
	}
	status, body = s.post(page+"/captions/remove", url.Values{"captions": {all[0].ID.String()}, "back": {page}})
	if status != http.StatusOK || !strings.Contains(body, "Removed. The video is published again.") {
		t.Errorf("status %d\n%s", status, body)
	}
	if all, err := attached.New(s.st).List(t.Context(), s.seeded.Published); err != nil || len(all) != 0 {
		t.Errorf("after the removal: %+v, %v", all, err)
	}
}
