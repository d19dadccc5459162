package media

import (
	"errors"
	"testing"
	"time"
)

func TestStallDetector_DistinguishesIdleBusyAndStarved(t *testing.T) {
	t.Parallel()
	const look = 250 * time.Millisecond
	for name, c := range map[string]struct {
		stall time.Duration
		cpu   time.Duration // used per interval
		bytes int64         // read per interval
		known bool
		ready bool
		after time.Duration // until it is killed; 0: not within an hour
		as    error
	}{
		"does nothing":                 {time.Minute, 0, 0, true, false, time.Minute, ErrStalled},
		"does nothing, and may":        {0, 0, 0, true, false, 0, nil},
		"looks at its queue":           {time.Minute, 500 * time.Microsecond, 0, true, false, 75 * time.Second, ErrStalled},
		"works slowly":                 {time.Minute, 10 * time.Millisecond, 0, true, false, 7500 * time.Second, nil},
		"reads slowly":                 {time.Minute, 0, 2 << 10, true, false, 0, nil},
		"goes round in a circle":       {time.Minute, look, 0, true, true, 5 * time.Minute, ErrStalled},
		"does so on 64 processors":     {time.Minute, 64 * look, 0, true, true, time.Minute, ErrStalled},
		"waits for a processor":        {time.Minute, 0, 0, true, true, 10 * time.Minute, ErrStarved},
		"system does not say anything": {time.Minute, 0, 0, false, false, time.Minute, ErrStalled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stallDetector{stall: c.stall}
			v := resourceUsage{known: c.known}
			for at := look; at <= time.Hour; at += look {
				v.cpu += c.cpu
				v.bytes += c.bytes
				s.observe(look, v, func() bool { return c.ready })
				err := s.err()
				if err == nil {
					continue
				}
				if !errors.Is(err, c.as) || at < c.after-look || at > c.after+look {
					t.Errorf("after %v: %v; want %v after %v", at, err, c.as, c.after)
				}
				return
			}
			if c.as != nil {
				t.Errorf("it was never ended; want %v after %v", c.as, c.after)
			}
		})
	}
}

func TestStallDetector_RestartsAfterProgress(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]resourceUsage{"idle": {known: true}, "busy": {cpu: time.Second, known: true}} {
		s := stallDetector{stall: 2 * time.Second}
		sum := resourceUsage{known: true}
		for range 1000 {
			sum.cpu += v.cpu
			s.observe(time.Second, sum, func() bool { return false })
			if err := s.err(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			s.reset()
		}
	}
}
