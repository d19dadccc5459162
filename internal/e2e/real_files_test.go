package e2e

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mediaDir is a directory of real files, good and broken: $CUELIGHT_TEST_MEDIA, or one next
// to the checkout.
func mediaDir() string {
	return cmp.Or(os.Getenv("CUELIGHT_TEST_MEDIA"), "../../../shared/media")
}

// rejectReasons says why some of these files cannot be published.
var rejectReasons = map[string]string{
	"broken_wrongfile.mp4":        "not a video",
	"broken_no_moov.mp4":          "its index is missing",
	"encrypted_cenc_clearkey.mp4": "encrypted",
}

func TestRealFiles_ArePublishedOrRejectedWithAReason(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	found, _ := filepath.Glob(filepath.Join(mediaDir(), "*"))
	var files []string
	for _, f := range found {
		if abs, err := filepath.Abs(f); err == nil && !strings.HasSuffix(f, ".tsv") && !strings.HasPrefix(filepath.Base(f), "long_") {
			files = append(files, abs)
		}
	}
	if len(files) == 0 {
		t.Skip("the directory of real files, " + mediaDir() + ", does not exist")
	}
	h := newEnvironment(t)
	start := time.Now()
	all, code := h.run(files...)
	published := 0
	table := new(strings.Builder)
	for _, f := range files {
		o := all[f]
		name := filepath.Base(f)
		switch {
		case o.Status == "completed":
			fmt.Fprintf(table, "%-40s published  %6.1f s\n", name, seconds(o))
			published++
			checkPlayback(t, *o.Published)
		case o.Status == "dead" && o.Error != nil && len(*o.Error) > 10:
			fmt.Fprintf(table, "%-40s refused    %s\n", name, *o.Error)
		default:
			t.Errorf("%s: %+v", name, o)
		}
		if why := rejectReasons[name]; why != "" && o.Status == "completed" {
			t.Errorf("%s was published, but it is wrong: %s", name, why)
		}
	}
	want := 3 // some are published and some are not
	switch published {
	case len(files):
		want = 0
	case 0:
		want = 1
	}
	if code != want {
		t.Errorf("exit code is %d, want %d with %d of %d published", code, want, published, len(files))
	}
	t.Logf("%d files in %s:\n%s", len(files), time.Since(start).Round(time.Second), table)
}

func seconds(o outcome) float64 {
	var ms int64
	for _, s := range o.Stages {
		ms += s.DurationMS
	}
	return float64(ms) / 1000
}

// checkPlayback decodes a published video with ffmpeg.
func checkPlayback(t testing.TB, master string) {
	t.Helper()
	out, err := exec.Command("ffmpeg", "-v", "error", "-nostdin", "-i", master, "-map", "0:v:0?", "-map", "0:a:0?",
		"-f", "null", "-").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%s does not play: %v\n%s", master, err, out)
	}
	left, err := os.ReadDir(filepath.Dir(master))
	if err != nil {
		t.Error(err)
	}
	for _, e := range left {
		// The names of generations and chunks end in random letters, which may spell anything.
		if ext := filepath.Ext(e.Name()); ext == ".tmp" || ext == ".part" || strings.HasPrefix(e.Name(), ".") {
			t.Errorf("a temporary file is next to %s: %s", master, e.Name())
		}
	}
}
