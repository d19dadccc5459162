package media

import "math"

// setPictures compares the small pictures: two of each, with three planes.
func (c *comparison) setPictures(want, got []byte, w, h int) {
	n := w * h
	plane := func(b []byte, i int) []byte { return b[i*n : (i+1)*n] }
	c.similarity = 1
	grey := make([]byte, 2*n)
	for i := range grey {
		grey[i] = 128
	}
	c.colourShare, c.colourLevel = detail(got[n:3*n], want[n:3*n], grey)
	for _, first := range []int{0, 3} {
		c.similarity = min(c.similarity, similarity(plane(want, first), plane(got, first), w, h))
		for i := first + 1; i < first+3; i++ {
			c.colour = max(c.colour, meanDifference(plane(want, i), plane(got, i)))
		}
	}
	moved := difference(plane(want, 3), plane(want, 0))
	c.motion = rootMeanSquare(moved)
	c.motionMatch = correlation(moved, difference(plane(got, 3), plane(got, 0)))
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
	const c1, c2 = 6.5025, 58.5225 // (0.01*255)² and (0.03*255)²
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

// detail is how much of the detail that the next lower size cannot have is in a
// picture, and how much the source has, in levels of 255. The share is the projection
// of got-soft on sharp-soft: 1 for the source itself, 0 for a smaller picture that was
// scaled up.
func detail(got, sharp, soft []byte) (share, level float64) {
	var has, want int64
	for i, g := range got {
		s := int64(soft[i])
		fine := int64(sharp[i]) - s
		has += (int64(g) - s) * fine
		want += fine * fine
	}
	if want == 0 {
		return 1, 0
	}
	return float64(has) / float64(want), math.Sqrt(float64(want) / float64(len(got)))
}

// soundMatch is the correlation of sound, at the offset within want that fits best.
func soundMatch(want, got []float64) float64 {
	best, energy, gotEnergy := 0.0, 0.0, 0.0
	for i, g := range got {
		energy += want[i] * want[i]
		gotEnergy += g * g
	}
	for shift := 0; ; shift++ {
		dot := 0.0
		for i, w := range want[shift : shift+len(got)] {
			dot += w * got[i]
		}
		if energy > 0 && gotEnergy > 0 {
			best = max(best, dot/math.Sqrt(energy*gotEnergy))
		}
		if shift+len(got) == len(want) {
			return best
		}
		energy += want[shift+len(got)]*want[shift+len(got)] - want[shift]*want[shift]
	}
}

func difference(a, b []byte) []float64 {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = float64(a[i]) - float64(b[i])
	}
	return d
}

func meanDifference(a, b []byte) float64 {
	sum := 0.0
	for _, d := range difference(a, b) {
		sum += math.Abs(d)
	}
	return sum / float64(max(len(a), 1))
}

func rootMeanSquare(d []float64) float64 {
	sum := 0.0
	for _, v := range d {
		sum += v * v
	}
	return math.Sqrt(sum / float64(max(len(d), 1)))
}

// correlation is 1 if two lists are proportional, and about 0 if they are unrelated.
func correlation(a, b []float64) float64 {
	var ab, aa, bb float64
	for i, v := range a {
		ab += v * b[i]
		aa += v * v
		bb += b[i] * b[i]
	}
	if aa == 0 || bb == 0 {
		return 0
	}
	return ab / math.Sqrt(aa*bb)
}
