package media

import "math"

// bandwidth measures a rendition as HLS defines it: the peak is the highest
// rate of any run of segments that lasts between half and one and a half
// target durations, the average is over all.
func bandwidth(s *renditionFiles) (peak, average int64) {
	total, length := int64(0), 0.0
	for _, g := range s.segments {
		total += g.bytes
		length += s.seconds(g.length)
	}
	if length <= 0 {
		return 0, 0
	}
	average = int64(math.Ceil(float64(total) * 8 / length))
	peak = average
	shortest, longest := 0.5*float64(s.target), 1.5*float64(s.target)
	for i := range s.segments {
		bytes, seconds := int64(0), 0.0
		for _, g := range s.segments[i:] {
			bytes += g.bytes
			seconds += s.seconds(g.length)
			if seconds > longest {
				break
			}
			if seconds >= shortest {
				peak = max(peak, int64(math.Ceil(float64(bytes)*8/seconds)))
			}
		}
	}
	return peak, average
}
