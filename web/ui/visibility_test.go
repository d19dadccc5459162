package ui_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/stages/video"
)

func TestVisibility_IsShownAndChangedByAForm(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	page := "/videos/" + s.seeded.Published.String()
	for _, c := range []struct{ button, to, link string }{
		{"Make public…", "public", "Anybody who has it can watch for a week"},
		{"Make signed…", "signed", "Anybody can watch while the video is public"},
	} {
		if _, body, _ := s.get(page); !strings.Contains(body, c.button) || !strings.Contains(body, c.link) {
			t.Errorf("the page does not have %q and %q\n%s", c.button, c.link, body)
		}
		if _, body, _ := s.get(page + "/visibility"); !strings.Contains(body, `name="visibility" value="`+c.to+`"`) {
			t.Errorf("the form does not make it %s\n%s", c.to, body)
		}
		status, body := s.post(page+"/visibility", url.Values{"visibility": {c.to}, "back": {page}})
		params, err := s.st.Params(t.Context(), s.seeded.Published)
		if status != http.StatusOK || !strings.Contains(body, "The video is "+c.to+".") || err != nil ||
			video.IsPublic(params) != (c.to == "public") {
			t.Errorf("%s: status %d, %s, %v\n%s", c.to, status, params, err, body)
		}
	}
	if status, _ := s.post(page+"/visibility", nil); status != http.StatusUnprocessableEntity {
		t.Errorf("without a visibility: status %d", status)
	}
}
