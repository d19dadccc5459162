package main

import (
	"math"
	"testing"
)

func TestBitsAt_InterpolatesOnALineOfLogarithms(t *testing.T) {
	points := []point{{bits: 4000, ssim: 0.999}, {bits: 1000, ssim: 0.9}, {bits: 2000, ssim: 0.99}}
	for ssim, want := range map[float64]float64{0.9: 1000, 0.99: 2000, 1 - math.Sqrt(0.001): 1000 * math.Sqrt2, 0.9999: 8000} {
		if got := bitsAt(points, ssim); math.Abs(got-want) > 1e-6*want {
			t.Errorf("SSIM %.4f: %.1f bits; want %.1f", ssim, got, want)
		}
	}
}
