package media

import (
	"strings"
	"testing"
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
			if r.Width%2+r.Height%2 != 0 || !isEncodable(r.Width, r.Height) ||
				i > 0 && r.VideoBitrate >= rungs[i-1].VideoBitrate {
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

func TestLadderWith_MakesWhatWasAskedForAndAtLeastOneSize(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		w, h    int
		heights []int
		want    string
	}{
		{1280, 720, []int{1080, 720, 240}, "720p=1280x720 240p=426x240"},
		{1280, 720, []int{240}, "240p=426x240"},
		{1280, 720, []int{2160, 1440}, "720p=1280x720"},
		{640, 360, []int{480}, "360p=640x360"},
		{176, 144, []int{720, 240}, "144p=176x144"},
		{1920, 800, []int{1080}, "720p=1728x720"},
		{16384, 2160, []int{2160}, "1080p=8192x1080"},
	} {
		info := &Info{Video: &Video{Width: c.w, Height: c.h, FPS: 25}}
		rungs := LadderWith(info, LadderOptions{Heights: c.heights, Quality: 20, Preset: "slow"})
		if got := names(rungs); got != c.want {
			t.Errorf("%dx%d with %v gives %s, want %s", c.w, c.h, c.heights, got, c.want)
		}
		for _, r := range rungs {
			if r.Quality != 20 || r.Preset != "slow" {
				t.Errorf("rung %+v", r)
			}
		}
	}
	for bitrate, want := range map[int]int{0: 2, 320_000: 2, 64_000: 1, 32_000: 1} {
		rungs := LadderWith(&Info{Audio: []Audio{{}}}, LadderOptions{AudioBitrate: bitrate, Loudness: -16})
		if len(rungs) != want || rungs[0].AudioBitrate != max(bitrate, 32_000) && bitrate > 0 || rungs[0].Loudness != -16 {
			t.Errorf("sound of %d bit/s: %+v", bitrate, rungs)
		}
	}
}

// The settings of a rung go before those of the host that encodes it.
func TestLadderWith_AddsFurtherCodecsFrom720pOn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		height int
		o      LadderOptions
		want   string
	}{
		{2160, LadderOptions{}, "1080p 720p 480p 360p 240p"},
		{2160, LadderOptions{Heights: []int{2160, 720}}, "2160p 720p"},
		{2160, LadderOptions{Codecs: []string{"av1"}}, "2160p-av1 1440p-av1 1080p 1080p-av1 720p 720p-av1 480p 360p 240p"},
		{1440, LadderOptions{Codecs: []string{"hevc", "av1"}, Heights: []int{1440, 480}}, "1440p 1440p-hevc 1440p-av1 480p"},
		{480, LadderOptions{Codecs: []string{"hevc"}}, "480p 360p 240p"},
	} {
		info := &Info{Video: &Video{Width: c.height * 16 / 9, Height: c.height, FPS: 25}}
		var got []string
		for _, r := range LadderWith(info, c.o) {
			got = append(got, r.Name)
			if second := r.Codec != ""; second && r.VideoBitrate >= maxBitrate(r.Width, r.Height, 25) {
				t.Errorf("%s may have %d bit/s", r.Name, r.VideoBitrate)
			}
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%dp with %+v gives %s; want %s", c.height, c.o, text, c.want)
		}
	}
}

func TestEncoderSettings_AreThoseOfTheRung(t *testing.T) {
	t.Parallel()
	host := Tools{Preset: "fast", CRF: 30}
	for _, c := range []struct {
		rung   Rung
		preset string
		crf    int
	}{
		{Rung{}, "fast", 30}, {Rung{Quality: 18}, "fast", 18}, {Rung{Preset: "slow"}, "slow", 30},
	} {
		if s := host.encoderSettings(c.rung, "4"); s.preset != c.preset || s.crf != c.crf {
			t.Errorf("%+v: %+v", c.rung, s)
		}
	}
}
