package media

import (
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
		if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(timing{}), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}
