package media

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestTimeLimit_StopsEndlessProgress(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=64x64:r=10:d=1 "+h264)
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	const endless = "case \"$*\" in " +
		"*-progress*|*show_format*) i=0; while :; do i=$((i+1)); echo frame=$i; sleep 0.05; done;; " +
		"*) exec ffmpeg \"$@\";; esac\n"
	tools := Tools{FFmpeg: script(t, endless), FFprobe: script(t, endless), TimeFactor: 1, minTimeLimit: 2 * time.Second}
	if _, err := tools.Transcode(t.Context(), src, info, Ladder(info), t.TempDir(), nil); !errors.Is(err, ErrTooLong) {
		t.Errorf("transcode: %v; want ErrTooLong", err)
	}
	if _, err := tools.Probe(t.Context(), src); !errors.Is(err, ErrTooLong) {
		t.Errorf("probe: %v; want ErrTooLong", err)
	}
}

func TestTimeLimit_IsProportionalToSource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		factor, length float64
		want           time.Duration
	}{
		{0, 0, 30 * time.Minute},
		{0, 60, 130 * time.Minute},
		{2, 3600, 150 * time.Minute},
		{-1, 60, 0},
		{1, math.Inf(1), 30*time.Minute + 7*24*time.Hour},
	} {
		if got := (Tools{TimeFactor: c.factor}).timeLimit(c.length); got != c.want {
			t.Errorf("factor %v, %v s: %v; want %v", c.factor, c.length, got, c.want)
		}
	}
	tools := Tools{}
	if got := tools.timeLimit(tools.probeSeconds(3600 << 20)); got != 90*time.Minute {
		t.Errorf("3.5 GiB may be probed for %v", got)
	}
}
