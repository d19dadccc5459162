package media

import "math"

// h264Level is one row of H.264 table A-1.
type h264Level struct {
	level string
	rate  int // macroblocks per second
	size  int // macroblocks per frame
	dpb   int // macroblocks held for reference
	kbit  int // per second, High profile
}

var h264Levels = [...]h264Level{
	{"1", 1485, 99, 396, 80},
	{"1.1", 3000, 396, 900, 240},
	{"1.2", 6000, 396, 2376, 480},
	{"1.3", 11880, 396, 2376, 960},
	{"2", 11880, 396, 2376, 2500},
	{"2.1", 19800, 792, 4752, 5000},
	{"2.2", 20250, 1620, 8100, 5000},
	{"3", 40500, 1620, 8100, 12500},
	{"3.1", 108000, 3600, 18000, 17500},
	{"3.2", 216000, 5120, 20480, 25000},
	{"4", 245760, 8192, 32768, 25000},
	{"4.1", 245760, 8192, 32768, 62500},
	{"4.2", 522240, 8704, 34816, 62500},
	{"5", 589824, 22080, 110400, 168750},
	{"5.1", 983040, 36864, 184320, 300000},
	{"5.2", 2073600, 36864, 184320, 300000},
}

const (
	// The largest picture of level 5.2: a side may be the square root of eight
	// times the frame size in macroblocks.
	maxEncodedSide   = 543 * 16
	maxEncodedPixels = 36864 * 256
	// maxReferences is how many frames the encoder may refer to. More would
	// raise 1080p above level 4.0.
	maxReferences = 3
)

// isEncodable reports whether any level allows such a picture.
func isEncodable(w, h int) bool {
	return max(w, h) <= maxEncodedSide && macroblocks(w)*macroblocks(h) <= h264Levels[len(h264Levels)-1].size
}

func macroblocks(pixels int) int { return (pixels + 15) / 16 }

// h264LevelFor returns the lowest level that allows the video, so that weak decoders
// accept it. fps is the rate in the densest part of the source.
func h264LevelFor(w, h int, fps float64, bitrate int) string {
	n := macroblocks(w) * macroblocks(h)
	for _, l := range h264Levels {
		side := int(math.Sqrt(float64(8 * l.size)))
		if n <= l.size && macroblocks(w) <= side && macroblocks(h) <= side && fps*float64(n) <= 1.002*float64(l.rate) &&
			n*(maxReferences+1) <= l.dpb && bitrate <= l.kbit*1000 {
			return l.level
		}
	}
	return h264Levels[len(h264Levels)-1].level
}
