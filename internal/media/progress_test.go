package media

import (
	"fmt"
	"testing"
	"time"
)

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
