package ui_test

import (
	"strings"
	"testing"
)

func TestVideo_HasALinkToItsMP4File(t *testing.T) {
	t.Parallel()
	s := newTestSite(t, nil)
	const link = `<a href="/x/gen-0001-k3j9x2mq7b/video.mp4" download>Download MP4</a>`
	if _, body, _ := s.get("/videos/" + s.seeded.Published.String()); !strings.Contains(body, link) {
		t.Errorf("the page does not have %s\n%s", link, body)
	}
}
