package video

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestIngest_LeavesOutSizesWithoutDetail(t *testing.T) {
	t.Parallel()
	if clips.picture == "" {
		t.Skip("there is no ffmpeg here")
	}
	file := filepath.Join(t.TempDir(), "enlarged.mp4")
	out, err := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-i", clips.picture, "-an", "-t", "1", "-vf", "scale=960:720:flags=bicubic",
		"-c:v", "libx264", "-preset", "ultrafast", file).CombinedOutput()
	if err != nil {
		t.Fatalf("make clip: %v: %s", err, out)
	}
	for params, want := range map[string]string{"{}": "480p 360p 240p", `{"renditions": [720, 240]}`: "720p 240p"} {
		h := newHarness(t, file)
		h.job.Params = []byte(params)
		in := h.mustIngest()
		var got []string
		for _, r := range in.ladder() {
			got = append(got, r.Name)
		}
		isWarned := strings.Contains(strings.Join(in.Warnings, " "), "720p left out")
		if text := strings.Join(got, " "); text != want || isWarned != (params == "{}") {
			t.Errorf("%s: %s, warnings %q; want %s", params, text, in.Warnings, want)
		}
	}
}
