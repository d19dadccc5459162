package report

import (
	"math"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/bench/result"
)

// number writes three digits that matter, or all before the point, with commas
// between thousands.
func formatNumber(v float64) string {
	size := math.Abs(v)
	switch {
	case size == 0:
		return "0"
	case size >= 99.95:
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case size >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case size >= 0.995:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	places := 1 - int(math.Floor(math.Log10(size)))
	return strconv.FormatFloat(v, 'f', places, 64)
}

func thousands(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// with writes a number with its unit, shorter than in a table: for plots.
func formatWithUnit(v float64, unit string) string {
	switch {
	case unit == "ms" && v >= 1000:
		return formatNumber(v/1000) + " s"
	case unit == "ms" && v < 0.1:
		return formatNumber(v*1000) + " µs"
	case unit == "tasks/s" && v >= 9995:
		return strconv.FormatFloat(v/1000, 'f', 1, 64) + "k tasks/s"
	case strings.HasPrefix(unit, "share"):
		return formatNumber(v*100) + " %"
	}
	return formatNumber(v) + " " + unit
}

// count writes a whole number as people say it: 5k, 1M.
func count(n float64) string {
	switch {
	case n >= 1e6 && math.Mod(n, 1e5) == 0:
		return strconv.FormatFloat(n/1e6, 'f', -1, 64) + "M"
	case n >= 1e3 && math.Mod(n, 1e3) == 0:
		return strconv.FormatFloat(n/1e3, 'f', -1, 64) + "k"
	}
	return thousands(strconv.FormatFloat(n, 'f', -1, 64))
}

// ranged writes the median, and the range where there is one.
func formatSpread(s result.Spread) string {
	if s.Rounds < 2 {
		return formatNumber(s.Median)
	}
	return formatNumber(s.Median) + " (" + formatNumber(s.Min) + "–" + formatNumber(s.Max) + ")"
}

// counted is count of what is a number, and anything else as it is.
func counted(s string) string {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	return count(n)
}
