package media

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestPlanTiming_FollowsSource(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		info Info
		want timing
	}{
		{"as it is", Info{Duration: 10, Video: &Video{FPS: 25, Duration: 10, MaxGap: 0.04}}, timing{maxSeconds: 15}},
		{
			"late", Info{Start: 10, FormatStart: 8, Duration: 10, Video: &Video{Start: 10, FPS: 25, Duration: 10}},
			timing{offset: 2, maxSeconds: 15},
		},
		{
			"late, with clocks that jump",
			Info{Container: "mpegts", Start: 10, FormatStart: 8, Duration: 10, Video: &Video{Start: 10, FPS: 25, Duration: 10}},
			timing{maxSeconds: 15},
		},
		{
			"late, with another stream before it",
			Info{
				Container: "mpegts", Start: 10, Duration: 9, Video: &Video{Start: 10, FPS: 25, Duration: 9},
				Audio: []Audio{{Start: 9.95}},
			},
			timing{offset: 0.05, maxSeconds: 14},
		},
		{
			"after the sound", Info{Duration: 10, Video: &Video{Start: 0.5, FPS: 25, Duration: 9.5}},
			timing{lead: 0.5, maxSeconds: 15},
		},
		{"fast", Info{Duration: 200, Video: &Video{FPS: 120, Duration: 200}}, timing{dropsFrames: true, maxSeconds: 210}},
		{"a hair above 60", Info{Duration: 10, Video: &Video{FPS: 60.04, Duration: 10}}, timing{maxSeconds: 15}},
		{
			"slides", Info{Duration: 60, Video: &Video{Frames: 6, FPS: 0.1, Duration: 60, MaxGap: 10}},
			timing{repeatedFrames: 30, isSlideShow: true, repeatedSeconds: 60, maxSeconds: 65},
		},
		{
			"a song", Info{Duration: 60, Video: &Video{Frames: 1, FPS: 25, Duration: 0.04}},
			timing{repeatedFrames: 30, isSlideShow: true, repeatedSeconds: 60, maxSeconds: 65},
		},
		{
			"film with a pause", Info{Duration: 60, Video: &Video{Frames: 1439, FPS: 23.98, Duration: 60, MaxGap: 3}},
			timing{repeatedFrames: 30, repeatedSeconds: 60, maxSeconds: 65},
		},
	}
	for _, tt := range tests {
		got := planTiming(&tt.info)
		tt.want.segment = segmentTicks
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(timing{}), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}

func TestPlanTiming_GivesSegmentsOfUsualRatesAWholeNumberOfFrames(t *testing.T) {
	t.Parallel()
	for rate, want := range map[float64]float64{
		24: 6, 25: 6, 30: 6, 50: 6, 60: 6, 24000.0 / 1001: 6.006, 30000.0 / 1001: 6.006, 60000.0 / 1001: 6.006, 29.97: 6.006,
		29.8: 6, 15: 6, 12.5: 6, 10.1: 6, 0.7: 6, 1: 6,
	} {
		plan := planTiming(&Info{Duration: 100, Video: &Video{FPS: rate, Duration: 100}})
		if got := float64(plan.segment) / videoTimescale; got != want {
			t.Errorf("segments of %g frames a second last %g s; want %g", rate, got, want)
		}
	}
}

func TestTranscode_ShowsStreamsWithoutTimestampsToTheirEnd(t *testing.T) {
	t.Parallel()
	for file, c := range map[string]struct {
		rate, codec string
		frames      int64
	}{
		"a.h264": {"30000/1001", h264 + "-bf 2", 180},
		"a.hevc": {"24/1", "-c:v libx265 -preset ultrafast -x265-params log-level=none", 144},
		"a.m2v":  {"25/1", "-c:v mpeg2video", 150},
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			r := publish(t, makeClip(t, file, fmt.Sprintf("-f lavfi -i testsrc2=s=96x96:r=%s -frames:v %d %s", c.rate, c.frames, c.codec)))
			if r.out.Expected != c.frames || !isNear(r.out.Duration, float64(c.frames)/parseRatio(c.rate), 0.05) {
				t.Errorf("%d frames in %.3f s; want %d at %s a second", r.out.Expected, r.out.Duration, c.frames, c.rate)
			}
			if err := fastTools.PosterAt(t.Context(), r.src, r.info, 5.5, filepath.Join(t.TempDir(), "poster.jpg")); err != nil {
				t.Error(err)
			}
		})
	}
}
