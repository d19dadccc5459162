package media

import (
	"testing"
)

func TestTrackTiming_MeasuresPackets(t *testing.T) {
	t.Parallel()
	lines := func(jumping bool, text string) *trackTiming {
		r := newPacketReader(jumping, nil)
		if _, err := r.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		return r.finish()[0]
	}
	t.Run("reordered frames", func(t *testing.T) {
		tr := lines(false,
			"stream_index=0|pts_time=0|dts_time=-0.2|duration_time=0.1|flags=K_\n"+
				"stream_index=0|pts_time=0.3|dts_time=-0.1|duration_time=0.1|flags=__\n"+
				"stream_index=0|pts_time=0.1|dts_time=0|duration_time=0.1|flags=__\n"+
				"stream_index=0|pts_time=0.2|dts_time=0.1|duration_time=0.1|flags=__\n")
		if tr.packets != 4 || tr.keyframes != 1 || !isNear(tr.duration(), 0.4, 1e-9) || !isNear(tr.maxGap, 0.1, 1e-9) {
			t.Errorf("%+v", tr)
		}
	})
	t.Run("packets hidden by an edit list", func(t *testing.T) {
		tr := lines(false,
			"stream_index=0|pts_time=-1|dts_time=-1|duration_time=1|flags=KD\n"+
				"stream_index=0|pts_time=0|dts_time=0|duration_time=1|flags=K_\n")
		if tr.packets != 1 || tr.hidden != 1 || tr.first != 0 || tr.duration() != 1 {
			t.Errorf("%+v", tr)
		}
	})
	t.Run("a clock that jumps", func(t *testing.T) {
		text := "stream_index=0|pts_time=0|dts_time=0|duration_time=1|flags=K_\n" +
			"stream_index=0|pts_time=5000|dts_time=5000|duration_time=1|flags=K_\n" +
			"stream_index=0|pts_time=3|dts_time=3|duration_time=1|flags=K_\n"
		if tr := lines(true, text); tr.duration() != 3 || tr.maxGap != 1 {
			t.Errorf("where it may jump: %+v", tr)
		}
		if tr := lines(false, text); tr.duration() != 5001 {
			t.Errorf("where it may not: %+v", tr)
		}
	})
	t.Run("no timestamps after the first", func(t *testing.T) {
		tr := lines(false,
			"stream_index=0|pts_time=N/A|dts_time=0|duration_time=0.04|flags=K_\n"+
				"stream_index=0|pts_time=N/A|dts_time=N/A|duration_time=0.04|flags=__\n")
		if tr.packets != 2 || !isNear(tr.duration(), 0.08, 1e-9) {
			t.Errorf("%+v", tr)
		}
	})
	t.Run("no durations", func(t *testing.T) {
		tr := lines(false,
			"stream_index=0|pts_time=0|dts_time=0\nstream_index=0|pts_time=0.5|dts_time=0.5\n"+
				"stream_index=0|pts_time=1|dts_time=1\n")
		if !isNear(tr.duration(), 1.5, 1e-9) {
			t.Errorf("%+v", tr)
		}
	})
}
