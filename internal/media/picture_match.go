package media

import (
	"math"
	"slices"
)

// newComparison compares two small pictures with three planes. Colours are compared by areas, so that noise in them does not
// count.
func newComparison(want, got []byte, w, h int) (c comparison) {
	n := w * h
	c.similarity = similarity(want[:n], got[:n], w, h)
	wantU, gotU := areaMeans(want[n:2*n], w, h), areaMeans(got[n:2*n], w, h)
	wantV, gotV := areaMeans(want[2*n:], w, h), areaMeans(got[2*n:], w, h)
	c.colour = max(meanDifference(wantU, gotU), meanDifference(wantV, gotV))
	c.colourShare, c.colourLevel = colourOf(slices.Concat(gotU, gotV), slices.Concat(wantU, wantV))
	return c
}

// areaMeans returns the mean of every window of 8 by 8 pixels.
func areaMeans(plane []byte, w, h int) (means []byte) {
	side := min(8, w, h)
	for y := 0; y+side <= h; y += side {
		for x := 0; x+side <= w; x += side {
			sum := 0
			for row := y; row < y+side; row++ {
				for _, p := range plane[row*w+x : row*w+x+side] {
					sum += int(p)
				}
			}
			means = append(means, byte(sum/(side*side)))
		}
	}
	return means
}

// similarity is the mean structural similarity (SSIM) of two pictures, in windows of
// 8 by 8 pixels: 1 if they are equal, about 0 if they have nothing in common.
func similarity(a, b []byte, w, h int) float64 {
	sum, windows := 0.0, 0
	side := min(8, w, h)
	for y := 0; y+side <= h; y += max(1, side/2) {
		for x := 0; x+side <= w; x += max(1, side/2) {
			sum += windowSimilarity(a[y*w+x:], b[y*w+x:], w, side)
			windows++
		}
	}
	return sum / float64(max(windows, 1))
}

func windowSimilarity(a, b []byte, w, side int) float64 {
	// c2 is the variance below which a window has no structure, as flat areas, and noise that was averaged.
	const c1, c2 = 0.01 * 255 * 0.01 * 255, 0.12 * 255 * 0.12 * 255
	var sa, sb, saa, sbb, sab int
	for y := range side {
		row := b[y*w : y*w+side]
		for x, p := range a[y*w : y*w+side] {
			p, q := int(p), int(row[x])
			sa, sb = sa+p, sb+q
			saa, sbb, sab = saa+p*p, sbb+q*q, sab+p*q
		}
	}
	n := float64(side * side)
	ma, mb := float64(sa)/n, float64(sb)/n
	va, vb, cov := float64(saa)/n-ma*ma, float64(sbb)/n-mb*mb, float64(sab)/n-ma*mb
	return (2*ma*mb + c1) * (2*cov + c2) / ((ma*ma + mb*mb + c1) * (va + vb + c2))
}

// colourOf is how much of the source's colours is in a picture, and how much the source has, in levels of 255. The share is
// a projection: 1 for the source itself, 0 for grey.
func colourOf(got, want []byte) (share, level float64) {
	const grey = 128
	var has, all int64
	for i, g := range got {
		w := int64(want[i]) - grey
		has += (int64(g) - grey) * w
		all += w * w
	}
	if all == 0 {
		return 1, 0
	}
	return float64(has) / float64(all), math.Sqrt(float64(all) / float64(len(got)))
}

func meanDifference(a, b []byte) float64 {
	sum := 0
	for i := range a {
		sum += max(int(a[i])-int(b[i]), int(b[i])-int(a[i]))
	}
	return float64(sum) / float64(max(len(a), 1))
}
