package browser_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

var mediaDir struct {
	sync.Mutex
	dir string
}

// hasMedia reports whether this machine has ffmpeg to create a video.
func hasMedia(t *testing.T) bool {
	t.Helper()
	_, err := exec.LookPath("ffmpeg")
	return err == nil
}

// newMedia serves five seconds of HLS. It returns nil without ffmpeg.
func newMedia(t *testing.T) http.Handler {
	t.Helper()
	if !hasMedia(t) {
		return nil
	}
	mediaDir.Lock()
	defer mediaDir.Unlock()
	if mediaDir.dir == "" {
		dir := t.TempDir()
		cmd := exec.Command("ffmpeg", "-v", "error",
			"-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=5", "-f", "lavfi", "-i", "sine=duration=5",
			"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "25", "-c:a", "aac",
			"-f", "hls", "-hls_time", "1", "-hls_segment_type", "fmp4", "-hls_playlist_type", "vod",
			"-master_pl_name", "master.m3u8", filepath.Join(dir, "one.m3u8"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("create a video: %v\n%s", err, out)
		}
		mediaDir.dir = dir
	}
	files := http.FileServer(http.Dir(mediaDir.dir))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch filepath.Ext(r.URL.Path) {
		case ".m3u8":
			w.Header().Set("Content-Type", "application/vnd.apple.mpegurl")
		case ".m4s", ".mp4":
			w.Header().Set("Content-Type", "video/mp4")
		}
		files.ServeHTTP(w, r)
	})
}
