package video

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The film is divided, and a retry makes only the renditions of a height again.
func TestStages_PublishFurtherCodecsOfARemoteWorker(t *testing.T) {
	t.Parallel()
	s := newWorkingSite(t, 6*time.Second, true)
	task := s.submitWith(filmOfSize(t, "720x720"),
		`{"codecs": ["hevc"], "hdr": true, "renditions": [720, 240], "preset": "superfast", "quality": 40}`)
	tr, p := s.waitPublished(task)
	master := read(t, filepath.Join(s.PublishDir, p.Master))
	if !strings.Contains(master, "720p-hevc/index.m3u8") || !strings.Contains(master, `CODECS="hvc1.1.6.`) || tr.Chunks < 2 {
		t.Errorf("of %d chunks\n%s", tr.Chunks, master)
	}
	if err := s.retryRenditions(task, 720); err != nil {
		t.Fatal(err)
	}
	again, _ := s.waitPublished(task)
	if kept := strings.Join(again.Kept, " "); kept != "240p audio" {
		t.Errorf("kept %q; want 240p and the sound", kept)
	}
}
