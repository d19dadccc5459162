package proofkit

import (
	"cmp"
	"slices"
)

// Percentile returns the nearest rank of the values; 0 if there are none.
func Percentile[T cmp.Ordered](values []T, percent int) (v T) {
	if len(values) == 0 {
		return v
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*percent+99)/100-1]
}
