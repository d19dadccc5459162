package browser_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
			"-filter_complex", "[0]split[large][b];[b]scale=-2:90[small]", "-map", "[large]", "-map", "[small]", "-map", "1", "-map", "1",
			"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "25", "-b:v:0", "400k", "-b:v:1", "80k", "-c:a", "aac",
			"-f", "hls", "-hls_time", "1", "-hls_segment_type", "fmp4", "-hls_playlist_type", "vod", "-master_pl_name", "master.m3u8",
			"-hls_fmp4_init_filename", "init_%v.mp4", "-var_stream_map",
			"v:0,agroup:a v:1,agroup:a a:0,agroup:a,default:yes,language:en,name:English a:1,agroup:a,language:de,name:Deutsch",
			filepath.Join(dir, "%v.m3u8"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("create a video: %v\n%s", err, out)
		}
		addCaptions(t, dir)
		mediaDir.dir = dir
	}
	files := http.FileServer(http.Dir(mediaDir.dir))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch filepath.Ext(r.URL.Path) {
		case ".m3u8":
			w.Header().Set("Content-Type", "application/vnd.apple.mpegurl")
		case ".vtt":
			w.Header().Set("Content-Type", "text/vtt")
		case ".m4s", ".mp4":
			w.Header().Set("Content-Type", "video/mp4")
		}
		files.ServeHTTP(w, r)
	})
}

// addCaptions adds captions to a master playlist.
func addCaptions(t *testing.T, dir string) {
	t.Helper()
	master, err := os.ReadFile(filepath.Join(dir, "master.m3u8"))
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile("(?m)^#EXT-X-STREAM-INF:.*$").ReplaceAll(master, []byte(`$0,SUBTITLES="s"`))
	for name, text := range map[string]string{
		"master.m3u8": string(lines) + `#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="s",NAME="Norsk",LANGUAGE="no",AUTOSELECT=YES,URI="no.m3u8"` + "\n",
		"no.m3u8":     "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-TARGETDURATION:5\n#EXTINF:5,\nno.vtt\n#EXT-X-ENDLIST\n",
		"no.vtt":      "WEBVTT\n\n00:00.000 --> 00:05.000\nHei\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
