package e2e

import (
	"fmt"
	"image/png"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/browsertest"
)

// TestDashboard_TakesReadmeScreenshots takes board.png and video.png for the README, if
// $CUELIGHT_TEST_README names a directory. The sources are shown below /srv/videos, a
// temporary symbolic link.
func TestDashboard_TakesReadmeScreenshots(t *testing.T) {
	to := os.Getenv("CUELIGHT_TEST_README")
	if to == "" {
		t.Skip("CUELIGHT_TEST_README names no directory")
	}
	b := browsertest.Require(t)
	s := newDashboardDaemon(t)
	const shown = "/srv/videos"
	if err := os.Symlink(s.videos, shown); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(shown); err != nil {
			t.Error(err)
		}
	})
	for name, seed := range map[string]float64{
		"harbour-morning.mp4": 8, "night-train.mp4": 2, "garden-in-june.mov": 3,
		"a-walk-along-the-northern-coast-part-2.mp4": 5,
	} {
		s.makeLandscape(name, seed, 40*time.Second)
	}
	err := os.WriteFile(filepath.Join(s.videos, "interview-take-3.mp4"), []byte("see the other disk"), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	can := s.controls()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	can["host"] = func(url.Values) (string, error) { // not of this machine
		_, err := s.pool.Exec(t.Context(), `
with renamed as (update workers set host = 'media-1')
update attempts set error = replace(error, $1, 'media-1') where outcome = 'expired'`, host)
		return "", err
	}
	dir := t.TempDir()
	b.Run(t, "pictures.mjs", map[string]any{
		"url": "http://" + s.address, "control": browsertest.Control(t, can), "videos": shown,
		"admin": s.secret("admin"), "to": dir,
	})
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"board.png", "video.png"} {
		file := filepath.Join(to, name)
		palette := "split[a][b];[a]palettegen=stats_mode=full[p];[b][p]paletteuse=dither=none"
		out, err := exec.Command("ffmpeg", "-v", "error", "-y", "-i", filepath.Join(dir, name), "-vf", palette,
			"-pred", "none", file).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if info, err := os.Stat(file); err != nil || info.Size() > 150<<10 {
			t.Errorf("%s has %d bytes, %v", name, info.Size(), err)
		}
	}
}

// makeLandscape creates a source that moves past a landscape.
func (s *dashboardDaemon) makeLandscape(name string, seed float64, length time.Duration) {
	s.t.Helper()
	still := filepath.Join(s.t.TempDir(), "still.png")
	f, err := os.Create(still)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := png.Encode(f, browsertest.Landscape(seed, 1920, 720)); err != nil {
		s.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		s.t.Fatal(err)
	}
	s.makeVideo(name, fmt.Sprintf("movie=%s:loop=0,setpts=N/25/TB,crop=1280:720:x='mod(n,640)'", still), length)
}
