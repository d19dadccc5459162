package media

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestLadder_FollowsShortSideWithoutUpscaling(t *testing.T) {
	t.Parallel()
	tests := []struct {
		w, h int
		want string
	}{
		{3840, 2160, "2160p=3840x2160 1440p=2560x1440 1080p=1920x1080 720p=1280x720 480p=854x480 360p=640x360 240p=426x240"},
		{2160, 3840, "2160p=2160x3840 1440p=1440x2560 1080p=1080x1920 720p=720x1280 480p=480x854 360p=360x640 240p=240x426"},
		{1920, 800, "720p=1728x720 480p=1152x480 360p=864x360 240p=576x240"},
		{1918, 1078, "1080p=1918x1078 720p=1282x720 480p=854x480 360p=640x360 240p=428x240"},
		{641, 361, "360p=640x360 240p=426x240"},
		{240, 240, "240p=240x240"},
		{227, 227, "226p=226x226"},
		{176, 144, "144p=176x144"},
		{1, 1, "2p=2x2"},
		{16, 4000, "16p=16x4000"},
		{16384, 2160, "1080p=8192x1080 720p=5462x720 480p=3640x480 360p=2730x360 240p=1820x240"},
		{16384, 240, "126p=8688x126"},
	}
	for _, tt := range tests {
		info := &Info{Video: &Video{Width: tt.w, Height: tt.h, FPS: 25}}
		rungs := Ladder(info)
		if got := names(rungs); got != tt.want {
			t.Errorf("%dx%d gives\n %s; want\n %s", tt.w, tt.h, got, tt.want)
		}
		for i, r := range rungs {
			if r.Width%2+r.Height%2 != 0 || !isEncodable(r.Width, r.Height) || i > 0 && r.VideoBitrate >= rungs[i-1].VideoBitrate {
				t.Errorf("%dx%d: rung %+v", tt.w, tt.h, r)
			}
		}
	}
}

func TestLadder_IsValidForEverySize(t *testing.T) {
	t.Parallel()
	for w := 1; w <= maxSide; w += 1 + w/7 {
		for h := 1; h <= maxSide && w*h <= maxPixels; h += 1 + h/7 {
			v := &Video{Width: w, Height: h, FPS: 30}
			if _, _, ok := fitH264(w, h); !ok {
				continue
			}
			rungs := videoRungs(v)
			if len(rungs) == 0 {
				t.Fatalf("%dx%d has no rung", w, h)
			}
			seen := map[string]bool{}
			for _, r := range rungs {
				if r.Width < 2 || r.Height < 2 || r.Width%2 != 0 || r.Height%2 != 0 || !isEncodable(r.Width, r.Height) ||
					r.Width > max(w, 2) || r.Height > max(h, 2) || r.VideoBitrate <= 0 || seen[r.Name] {
					t.Fatalf("%dx%d has rung %+v", w, h, r)
				}
				seen[r.Name] = true
			}
		}
	}
}

func TestLadder_GivesHighFrameRatesMoreBits(t *testing.T) {
	t.Parallel()
	if slow, fast := maxBitrate(1920, 1080, 30), maxBitrate(1920, 1080, 60); slow != 5_000_000 || fast != 7_500_000 {
		t.Errorf("%d and %d", slow, fast)
	}
}

func TestH264LevelFor_ReturnsLowestLevel(t *testing.T) {
	t.Parallel()
	tests := []struct {
		w, h int
		fps  float64
		want string
	}{
		{426, 240, 30, "2.1"}, {640, 360, 25, "3"}, {1280, 720, 30, "3.1"}, {1280, 720, 60, "3.2"},
		{1920, 1080, 30.00000005, "4"}, {1920, 1080, 59.94, "4.2"}, {2560, 1440, 30, "5"}, {3840, 2160, 30, "5.1"},
		{3840, 2160, 60, "5.2"}, {16, 4000, 30, "4"}, {2, 2, 1, "1.1"},
	}
	for _, tt := range tests {
		if got := h264LevelFor(tt.w, tt.h, tt.fps, maxBitrate(tt.w, tt.h, tt.fps)); got != tt.want {
			t.Errorf("%dx%d at %v: %s; want %s", tt.w, tt.h, tt.fps, got, tt.want)
		}
	}
}

func TestPlanTiming_FollowsSource(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		info Info
		want timing
	}{
		{"as it is", Info{Duration: 10, Video: &Video{FPS: 25, Duration: 10, MaxGap: 0.04}}, timing{maxSeconds: 15}},
		{"late", Info{Start: 10, FormatStart: 8, Duration: 10, Video: &Video{Start: 10, FPS: 25, Duration: 10}}, timing{offset: 2, maxSeconds: 15}},
		{
			"late, with clocks that jump",
			Info{Container: "mpegts", Start: 10, FormatStart: 8, Duration: 10, Video: &Video{Start: 10, FPS: 25, Duration: 10}},
			timing{maxSeconds: 15},
		},
		{
			"late, with another stream before it",
			Info{Container: "mpegts", Start: 10, Duration: 9, Video: &Video{Start: 10, FPS: 25, Duration: 9}, Audio: []Audio{{Start: 9.95}}},
			timing{offset: 0.05, maxSeconds: 14},
		},
		{"after the sound", Info{Duration: 10, Video: &Video{Start: 0.5, FPS: 25, Duration: 9.5}}, timing{lead: 0.5, maxSeconds: 15}},
		{"fast", Info{Duration: 200, Video: &Video{FPS: 120, Duration: 200}}, timing{dropsFrames: true, maxSeconds: 210}},
		{"a hair above 60", Info{Duration: 10, Video: &Video{FPS: 60.04, Duration: 10}}, timing{maxSeconds: 15}},
		{"slides", Info{Duration: 60, Video: &Video{Frames: 6, FPS: 0.1, Duration: 60, MaxGap: 10}}, timing{repeatedFrames: 30, isSlideShow: true, repeatedSeconds: 60, maxSeconds: 65}},
		{"a song", Info{Duration: 60, Video: &Video{Frames: 1, FPS: 25, Duration: 0.04}}, timing{repeatedFrames: 30, isSlideShow: true, repeatedSeconds: 60, maxSeconds: 65}},
		{"film with a pause", Info{Duration: 60, Video: &Video{Frames: 1439, FPS: 23.98, Duration: 60, MaxGap: 3}}, timing{repeatedFrames: 30, repeatedSeconds: 60, maxSeconds: 65}},
	}
	for _, tt := range tests {
		got := planTiming(&tt.info)
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(timing{}), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestTrackTiming_MeasuresPackets(t *testing.T) {
	t.Parallel()
	lines := func(jumping bool, text string) *trackTiming {
		r := newPacketReader(jumping)
		if _, err := r.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return r.finish()[0]
	}
	t.Run("reordered frames", func(t *testing.T) {
		tr := lines(false, "stream_index=0|pts_time=0|dts_time=-0.2|duration_time=0.1|flags=K_\nstream_index=0|pts_time=0.3|dts_time=-0.1|duration_time=0.1|flags=__\n"+
			"stream_index=0|pts_time=0.1|dts_time=0|duration_time=0.1|flags=__\nstream_index=0|pts_time=0.2|dts_time=0.1|duration_time=0.1|flags=__\n")
		if tr.packets != 4 || tr.keyframes != 1 || !isNear(tr.duration(), 0.4, 1e-9) || !isNear(tr.maxGap, 0.1, 1e-9) {
			t.Errorf("%+v", tr)
		}
	})
	t.Run("packets hidden by an edit list", func(t *testing.T) {
		tr := lines(false, "stream_index=0|pts_time=-1|dts_time=-1|duration_time=1|flags=KD\nstream_index=0|pts_time=0|dts_time=0|duration_time=1|flags=K_\n")
		if tr.packets != 1 || tr.hidden != 1 || tr.first != 0 || tr.duration() != 1 {
			t.Errorf("%+v", tr)
		}
	})
	t.Run("a clock that jumps", func(t *testing.T) {
		text := "stream_index=0|pts_time=0|dts_time=0|duration_time=1|flags=K_\nstream_index=0|pts_time=5000|dts_time=5000|duration_time=1|flags=K_\n" +
			"stream_index=0|pts_time=3|dts_time=3|duration_time=1|flags=K_\n"
		if tr := lines(true, text); tr.duration() != 3 || tr.maxGap != 1 {
			t.Errorf("where it may jump: %+v", tr)
		}
		if tr := lines(false, text); tr.duration() != 5001 {
			t.Errorf("where it may not: %+v", tr)
		}
	})
	t.Run("no timestamps after the first", func(t *testing.T) {
		tr := lines(false, "stream_index=0|pts_time=N/A|dts_time=0|duration_time=0.04|flags=K_\nstream_index=0|pts_time=N/A|dts_time=N/A|duration_time=0.04|flags=__\n")
		if tr.packets != 2 || !isNear(tr.duration(), 0.08, 1e-9) {
			t.Errorf("%+v", tr)
		}
	})
	t.Run("no durations", func(t *testing.T) {
		tr := lines(false, "stream_index=0|pts_time=0|dts_time=0\nstream_index=0|pts_time=0.5|dts_time=0.5\nstream_index=0|pts_time=1|dts_time=1\n")
		if !isNear(tr.duration(), 1.5, 1e-9) {
			t.Errorf("%+v", tr)
		}
	})
}

func TestProgress_IsSmoothedCappedAndIgnoresInvalidLines(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	var reports []Progress
	r := newProgressReader(100, func(p Progress) { reports = append(reports, p) }, func() time.Time { return now })
	block := func(us, frame string) {
		now = now.Add(time.Second)
		fmt.Fprintf(r, "frame=%s\nout_time_us=%s\nout_time_ms=999999999\nspeed=N/A\nprogress=continue\n", frame, us)
	}
	block("N/A", "0")
	block("2000000", "50")
	block("4000000", "100")
	block("-577014", "100")
	block("1e99", "x")
	block("200000000", "9999")
	for _, p := range reports {
		if p.Percent < 0 || p.Percent > 99 || p.ETA < 0 || p.Speed < 0 {
			t.Errorf("%+v", p)
		}
	}
	if p := reports[2]; p.Percent != 4 || p.Position != 4 || p.Frames != 100 || p.ETA < 30*time.Second {
		t.Errorf("%+v", p)
	}
	if p := reports[4]; p.Position != 4 {
		t.Errorf("%+v; want no step back", p)
	}
	if p := reports[5]; p.Percent != 99 || p.ETA != 0 {
		t.Errorf("%+v; want 99 %% and nothing left", p)
	}
}

func TestProgress_HasNoSpeedAtTheStart(t *testing.T) {
	t.Parallel()
	const never = -1
	for name, c := range map[string]struct {
		duration float64
		first    float64 // seconds of source in the first second
		then     float64 // and in each second after it
		known    int     // the second after which the speed is known
	}{
		"a burst, then steady":        {duration: 100, first: 20, then: 2, known: 2},
		"slow, of something long":     {duration: 1000, first: 0, then: 2, known: 6},
		"slow, of something endless":  {duration: 36000, first: 0, then: 2, known: 30},
		"of something without length": {duration: 0, first: 0, then: 2, known: 2},
		"nothing comes":               {duration: 100, first: 0, then: 0, known: never},
	} {
		now := time.Unix(0, 0)
		var last Progress
		r := newProgressReader(c.duration, func(p Progress) { last = p }, func() time.Time { return now })
		at := 0.0
		for second := 1; second <= 40; second++ {
			if now = now.Add(time.Second); second == 1 {
				at += c.first
			} else {
				at += c.then
			}
			fmt.Fprintf(r, "out_time_us=%.0f\nprogress=continue\n", at*1e6)
			want := c.known != never && second >= c.known
			if reports := last.Speed > 0; reports != want {
				t.Errorf("%s: the speed after %d s is %v", name, second, last.Speed)
			}
			if reports := last.ETA > 0; reports != (want && c.duration > 0) {
				t.Errorf("%s: the time left after %d s is %v", name, second, last.ETA)
			}
		}
	}
}

func TestProgress_HasNoPercentForUnknownDuration(t *testing.T) {
	t.Parallel()
	var last Progress
	r := newProgressReader(0, func(p Progress) { last = p }, time.Now)
	fmt.Fprint(r, "frame=5\nout_time_us=1000000\nprogress=continue\n")
	if last.Percent != 0 || last.ETA != 0 || last.Frames != 5 {
		t.Errorf("%+v", last)
	}
}

func TestStderrTail_IsShortCleanAndCounted(t *testing.T) {
	t.Parallel()
	s := &stderrTail{source: "/media/secret.mp4"}
	fmt.Fprintf(s, "[h264 @ 0x55d0c0ffee] [error] bad \xff thing\r[mov @ 0x1] [fatal] file:/media/secret.mp4: no\x1b[31m\n%s", strings.Repeat("x", 100000))
	report := s.report()
	if report.errors != 2 || s.diskError != nil {
		t.Errorf("%d errors, disk error %v; want 2 and none", report.errors, s.diskError)
	}
	if !strings.HasPrefix(report.tail, "[h264] bad \uFFFD thing\n[mov] source: no[31m\nxxx") || len(report.tail) > tailBytes {
		t.Errorf("tail %q", report.tail)
	}
	for range 1000 {
		fmt.Fprintln(s, strings.Repeat("y", 300))
	}
	if n := len(s.report().tail); n > tailBytes || n < tailBytes/2 {
		t.Errorf("tail of %d bytes", n)
	}
}

func TestBandwidth_IsThatOfTheHighestRun(t *testing.T) {
	t.Parallel()
	s := &renditionFiles{timescale: 1, target: 6, segments: []segment{
		{length: 6, bytes: 6000}, {length: 6, bytes: 12000}, {length: 1, bytes: 8000}, {length: 6, bytes: 6000},
	}}
	// The short segment counts only with a neighbour: 20000 B in 7 s.
	peak, average := bandwidth(s)
	if want := int64(math.Ceil(20000 * 8 / 7.0)); peak != want {
		t.Errorf("peak %d; want %d", peak, want)
	}
	if want := int64(math.Ceil(32000 * 8 / 19.0)); average != want {
		t.Errorf("average %d; want %d", average, want)
	}
}

func TestHasFPSModeOption_UsesLibraryVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"ffmpeg version 4.4\nlibavcodec     58.134.100 / 58.134.100\n":             false,
		"ffmpeg version 5.0\nlibavcodec     59. 18.100 / 59. 18.100\n":             false,
		"ffmpeg version 5.1.9-0+deb12u1\nlibavcodec     59. 37.100 / 59. 37.100\n": true,
		"ffmpeg version N-12-gabc\nlibavcodec     61.  3.100 / 61.  3.100\n":       true,
		"ffmpeg version 8.0\nlibavcodec     62. 11.100 / 62. 11.100\n":             true,
	} {
		if got := hasFPSModeOption(version); got != want {
			t.Errorf("%q: %v; want %v", version, got, want)
		}
	}
}

func TestInfo_SurvivesJSON(t *testing.T) {
	t.Parallel()
	before := &Info{
		Container: "mov", Size: 1, Duration: 2, Cover: -1, Video: &Video{Codec: "h264", Width: 2, Height: 4, HDR: "pq", Rotation: 90},
		Audio: []Audio{{Index: 1, Language: "eng"}}, Subtitles: []Subtitle{}, Warnings: []string{"w"},
	}
	b, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	after := &Info{}
	if err := json.Unmarshal(b, after); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after, cmp.AllowUnexported(Video{})); diff != "" {
		t.Error(diff)
	}
}
