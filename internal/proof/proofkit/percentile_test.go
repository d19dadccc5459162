package proofkit_test

import (
	"testing"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

func TestPercentile_IsTheNearestRank(t *testing.T) {
	t.Parallel()
	values := []int{50, 20, 40, 10, 30}
	for percent, want := range map[int]int{1: 10, 20: 10, 21: 20, 50: 30, 99: 50, 100: 50} {
		if got := proofkit.Percentile(values, percent); got != want {
			t.Errorf("percentile %d is %d, want %d", percent, got, want)
		}
	}
	if got := proofkit.Percentile([]float64{}, 50); got != 0 {
		t.Errorf("percentile of no values is %v", got)
	}
}
