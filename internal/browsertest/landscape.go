package browsertest

import (
	"image"
	"image/color"
	"math"
)

// Landscape draws hills in front of a sky, different ones for each seed from 0 on. It is a
// frame for videos that look real.
func Landscape(seed float64, width, height int) image.Image {
	img := image.NewRGBA(image.Rect(0, 0, width, height))
	hue := []float64{205, 28, 265, 190, 345, 215, 40}[int(seed)%7] // colours of the sky during a day
	sun, high := 0.2+0.6*math.Mod(seed/7, 1), 0.25+0.2*math.Mod(seed/11, 1)
	for x := range width {
		at := float64(x) / float64(width)
		ridge := [4]float64{}
		for k := range ridge {
			f := at * (2.5 + 1.5*float64(k))
			ridge[k] = 0.5 + 0.12*float64(k) + 0.07*math.Sin(f+seed*float64(k+1)) + 0.03*math.Sin(3.3*f+seed) +
				0.012*math.Sin(11*f+2*seed)
		}
		for y := range height {
			down := float64(y) / float64(height)
			glow := math.Exp(-12 * (math.Pow(at-sun, 2)*3 + math.Pow(down-high-0.15, 2)*4))
			c := shade(hue-25*down, 0.42, 0.40+0.38*down+0.2*glow)
			for k, top := range ridge {
				if down > top {
					c = shade(hue+12*float64(k), 0.30, 0.46-0.11*float64(k)-0.1*(down-top))
				}
			}
			img.Set(x, y, c)
		}
	}
	return img
}

// shade is a colour by hue in degrees, saturation and lightness.
func shade(h, s, l float64) color.RGBA {
	part := func(n float64) uint8 {
		k := math.Mod(n+h/30, 12)
		return uint8(255 * (l - s*min(l, 1-l)*max(-1, min(k-3, 9-k, 1))))
	}
	return color.RGBA{part(0), part(8), part(4), 255}
}
