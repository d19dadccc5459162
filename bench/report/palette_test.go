package report

import (
	"math"
	"testing"
)

func TestColours_ContrastWithTheBackground(t *testing.T) {
	t.Parallel()
	const white, dark = 0xFFFFFF, 0x0D1117
	for name, l := range systemStyles {
		p := l.paint
		if c := contrast(p.light, white); c < 3 {
			t.Errorf("%s on white: %.2f", name, c)
		}
		if c := contrast(p.dark, dark); c < 3 {
			t.Errorf("%s on dark: %.2f", name, c)
		}
	}
	for _, p := range []paint{ink, muted} {
		if contrast(p.light, white) < 4.5 || contrast(p.dark, dark) < 4.5 {
			t.Errorf("text in %06X or %06X is hard to read", p.light, p.dark)
		}
	}
}

func TestColours_MapToOneDarkColour(t *testing.T) {
	t.Parallel()
	dark := map[uint32]uint32{ink.light: ink.dark, muted.light: muted.dark, faint.light: faint.dark}
	for name, l := range systemStyles {
		p := l.paint
		if before, ok := dark[p.light]; ok && before != p.dark {
			t.Errorf("%s: %06X has the dark colours %06X and %06X", name, p.light, p.dark, before)
		}
		dark[p.light] = p.dark
	}
}

// visions simulate colour blindness in linear light, after Machado, Oliveira and Fernandes,
// 2009.
var visions = map[string][3][3]float64{
	"normal":      {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanope":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranope": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
}

func TestColours_DifferForColourBlindReaders(t *testing.T) {
	t.Parallel()
	const minimum = 11 // in CIE Lab, where 2 is just visible
	systems := []string{cuelightSystem, floor, "river_tx", "river_fast", "graphile", "dbos"}
	for vision, m := range visions {
		for i, a := range systems {
			for _, b := range systems[:i] {
				one, other := styleOf(a).paint, styleOf(b).paint
				for _, pair := range [][2]uint32{{one.light, other.light}, {one.dark, other.dark}} {
					if d := distance(labColor(pair[0], m), labColor(pair[1], m)); d < minimum {
						t.Errorf("%s: %s and %s, %06X and %06X, are %.1f apart", vision, a, b, pair[0], pair[1], d)
					}
				}
			}
		}
	}
}

func linear(v uint32) (c [3]float64) {
	for i := range c {
		s := float64(v>>(16-8*i)&0xFF) / 255
		if s <= 0.04045 {
			c[i] = s / 12.92
		} else {
			c[i] = math.Pow((s+0.055)/1.055, 2.4)
		}
	}
	return c
}

func times(m [3][3]float64, v [3]float64) (out [3]float64) {
	for i, row := range m {
		out[i] = row[0]*v[0] + row[1]*v[1] + row[2]*v[2]
	}
	return out
}

func labColor(v uint32, vision [3][3]float64) [3]float64 {
	light := times(vision, linear(v))
	for i := range light {
		light[i] = min(max(light[i], 0), 1)
	}
	xyz := times([3][3]float64{{0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}}, light)
	f := func(t float64) float64 {
		if t > 0.008856 {
			return math.Cbrt(t)
		}
		return 7.787*t + 16.0/116
	}
	x, y, z := f(xyz[0]/0.95047), f(xyz[1]), f(xyz[2]/1.08883)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

func distance(a, b [3]float64) float64 {
	return math.Hypot(math.Hypot(a[0]-b[0], a[1]-b[1]), a[2]-b[2])
}

func contrast(a, b uint32) float64 {
	luminance := func(v uint32) float64 { c := linear(v); return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] + 0.05 }
	return max(luminance(a)/luminance(b), luminance(b)/luminance(a))
}
