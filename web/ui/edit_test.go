package ui_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/stages/video"
)

func TestEdit_ChangesTitleDescriptionAndVisibilityByAForm(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	page := "/videos/" + s.seeded.Published.String()
	for _, c := range []struct{ before, to, after string }{
		{"Anybody who has it can watch for a week", "public", "Anybody can watch while the video is public"},
		{"Anybody can watch while the video is public", "signed", "Anybody who has it can watch for a week"},
	} {
		if _, body, _ := s.get(page); !strings.Contains(body, c.before) {
			t.Errorf("the page does not have %q\n%s", c.before, body)
		}
		status, body := s.post(page+"/edit", url.Values{
			"visibility": {c.to}, "title": {"Fjords & <islands>"}, "description": {"By\r\nboat"}, "back": {page},
		})
		params, err := s.st.Params(t.Context(), s.seeded.Published)
		if status != http.StatusOK || !strings.Contains(body, c.after) || !strings.Contains(body, "<h1>Fjords &amp; &lt;islands&gt;</h1>") ||
			err != nil || video.IsPublic(params) != (c.to == "public") {
			t.Errorf("%s: status %d, %s, %v\n%s", c.to, status, params, err, body)
		}
		if _, form, _ := s.get(page + "/edit"); !strings.Contains(form, `value="Fjords &amp; &lt;islands&gt;"`) ||
			!strings.Contains(form, ">By\nboat</textarea>") || !strings.Contains(form, `value="`+c.to+`" checked`) {
			t.Errorf("the form is\n%s", form)
		}
	}
	if status, _ := s.post(page+"/edit", nil); status != http.StatusUnprocessableEntity {
		t.Errorf("without a visibility: status %d", status)
	}
}
