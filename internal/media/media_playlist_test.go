package media

import (
	"math"
	"testing"
)

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
