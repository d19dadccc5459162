package report

import (
	"math"
	"strconv"
	"strings"
)

// The systems that the targets name.
const (
	cuelightSystem = "cuelight"
	floorSystem    = "floor"
)

// labels are readable names of systems.
var labels = map[string]string{
	cuelightSystem:    "Cuelight",
	"cuelight_remote": "Cuelight, remote worker",
	floorSystem:       "floor (bare SQL)",
	"river_tx":        "River, transactional",
	"river_fast":      "River, not transactional",
	"river_default":   "River, default cooldown",
	"polling_5s":      "polling every 5 s",
	"ffmpeg_bare":     "the same ffmpeg, bare",
}

func labelOf(name string) string {
	if l, ok := labels[name]; ok {
		return l
	}
	return name
}

// formatNumber writes three significant digits, or all before the point, with commas between
// thousands.
func formatNumber(v float64) string {
	size, places := math.Abs(v), 0
	switch {
	case size == 0:
		return "0"
	case size >= 99.95:
		return withCommas(strconv.FormatFloat(v, 'f', 0, 64))
	case size >= 9.995:
		places = 1
	case size >= 0.995:
		places = 2
	default:
		places = 1 - int(math.Floor(math.Log10(size)))
	}
	return strconv.FormatFloat(v, 'f', places, 64)
}

func withCommas(s string) string {
	digits, sign := strings.TrimPrefix(s, "-"), ""
	if digits != s {
		sign = "-"
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// formatSpread writes the median, and the range if there is one.
func formatSpread(s Spread) string {
	if s.Rounds < 2 {
		return formatNumber(s.Median)
	}
	return formatNumber(s.Median) + " (" + formatNumber(s.Min) + "–" + formatNumber(s.Max) + ")"
}
