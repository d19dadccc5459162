package video

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// logReads replaces the programs by scripts that record how much each has read. The
// count of a shell includes its children.
func (h *harness) logReads() (total func() int64) {
	h.t.Helper()
	dir := h.t.TempDir()
	file := filepath.Join(dir, "reads")
	h.Tools.Sandbox = "off" // the scripts write outside their directories
	for name, program := range map[string]*string{"ffmpeg": &h.Tools.FFmpeg, "ffprobe": &h.Tools.FFprobe} {
		*program = filepath.Join(dir, name)
		text := fmt.Sprintf("#!/bin/sh\n%s \"$@\"\ncode=$?\n"+
			"while read -r key n; do [ $key = rchar: ] && echo $n >>%q; done </proc/$$/io\nexit $code\n",
			name, file)
		if err := os.WriteFile(*program, []byte(text), 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	return func() (sum int64) {
		for number := range strings.FieldsSeq(read(h.t, file)) {
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil {
				h.t.Fatal(err)
			}
			sum += n
		}
		return sum
	}
}

// In addition to the copy, which is hashed while copying, the source is read once for
// the packets and once for the frames, and a little for headers, samples and poster.
func TestStages_ReadSourceTwice(t *testing.T) {
	t.Parallel()
	h := newHarness(t, clips.picture)
	h.job.Source = filepath.Join(t.TempDir(), "a.mkv")
	clip := exec.Command("ffmpeg", "-loglevel", "error", "-f", "lavfi",
		"-i", "testsrc2=s=160x120:r=25:d=60,noise=alls=60:allf=t",
		"-c:v", "ffv1", "-pix_fmt", "yuv420p", h.job.Source)
	if text, err := clip.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	total := h.logReads()
	m := h.mustMake()
	h.mustPublish(m)
	size := m.in.Bytes
	times := float64(total()) / float64(size)
	t.Logf("%d MiB were read %.2f times", size>>20, times)
	if size < 10<<20 || times < 1.5 || times > 2.5 {
		t.Errorf("%d bytes were read %.2f times; want 2", size, times)
	}
	if m.as.Storyboard == nil || len(m.as.Storyboard.Sheets) != 1 {
		t.Errorf("storyboard %+v", m.as.Storyboard)
	}
}
