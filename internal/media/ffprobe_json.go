package media

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// rawProbe is what ffprobe prints; numbers come as strings or not at all.
type rawProbe struct {
	Streams []rawStream `json:"streams"`
	Format  struct {
		Name     string     `json:"format_name"`
		Start    jsonNumber `json:"start_time"`
		Duration jsonNumber `json:"duration"`
	} `json:"format"`

	// tooLarge is the size of a picture that ffprobe refused to decode, such as
	// "16000x16000"; it then says nothing of the stream's size.
	rejectedSize string
	// truncated: the file ends before its container says.
	truncated bool
}

type rawStream struct {
	Index       int        `json:"index"`
	Codec       string     `json:"codec_name"`
	Type        string     `json:"codec_type"`
	Tag         string     `json:"codec_tag_string"`
	Profile     string     `json:"profile"`
	Width       int        `json:"width"`
	Height      int        `json:"height"`
	SAR         string     `json:"sample_aspect_ratio"`
	PixelFormat string     `json:"pix_fmt"`
	Range       string     `json:"color_range"`
	Matrix      string     `json:"color_space"`
	Transfer    string     `json:"color_transfer"`
	Primaries   string     `json:"color_primaries"`
	FieldOrder  string     `json:"field_order"`
	AverageRate string     `json:"avg_frame_rate"`
	Channels    int        `json:"channels"`
	Layout      string     `json:"channel_layout"`
	Rate        jsonNumber `json:"sample_rate"`
	Disposition struct {
		Default  int `json:"default"`
		Cover    int `json:"attached_pic"`
		Forced   int `json:"forced"`
		Thumbs   int `json:"timed_thumbnails"`
		Comment  int `json:"comment"`
		Impaired int `json:"visual_impaired"`
	} `json:"disposition"`
	Tags     map[string]string `json:"tags"`
	SideData []struct {
		Type          string `json:"side_data_type"`
		Matrix        string `json:"displaymatrix"`
		DoViProfile   int    `json:"dv_profile"`
		Compatibility *int   `json:"dv_bl_signal_compatibility_id"`
	} `json:"side_data_list"`
}

// text is a JSON string or number: versions of ffprobe differ.
type jsonNumber string

// UnmarshalJSON takes either.
func (t *jsonNumber) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err == nil {
		*t = jsonNumber(s)
		return nil
	}
	*t = jsonNumber(strings.TrimSpace(string(b)))
	return nil
}

// seconds is the text as a finite number; ok is false for "N/A".
func (t jsonNumber) seconds() (v float64, ok bool) {
	v, err := strconv.ParseFloat(string(t), 64)
	return v, err == nil && !math.IsNaN(v) && math.Abs(v) < maxTimestamp
}

// maxTimestamp bounds every time taken from a file, so that arithmetic in
// nanoseconds and in 1/120000 s ticks cannot overflow. It is some 30 years.
const maxTimestamp = 1e9

func parseProbe(b []byte) (*rawProbe, error) {
	raw := &rawProbe{}
	if err := json.Unmarshal(b, raw); err != nil {
		return nil, fmt.Errorf("read ffprobe's answer: %w", err)
	}
	return raw, nil
}

// ratio reads "30000/1001" or "64:45". Anything senseless is 0.
func parseRatio(s string) float64 {
	i := strings.IndexAny(s, "/:")
	if i < 0 {
		return 0
	}
	num, err1 := strconv.ParseFloat(s[:i], 64)
	den, err2 := strconv.ParseFloat(s[i+1:], 64)
	if err1 != nil || err2 != nil || num <= 0 || den <= 0 || math.IsInf(num, 0) || math.IsInf(den, 0) {
		return 0
	}
	return num / den
}

// tag looks a tag up without regard to case: demuxers differ.
func (s *rawStream) tag(name string) string {
	for k, v := range s.Tags {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// codec is the codec's name, or the container's own tag when ffmpeg knows
// none; known says which.
func (s *rawStream) codec() (name string, known bool) {
	if s.Codec != "" && s.Codec != "unknown" && s.Codec != "none" {
		return s.Codec, true
	}
	if s.Tag != "" && !strings.HasPrefix(s.Tag, "[0]") {
		return s.Tag, false
	}
	return "unknown", false
}

// orientation turns a display matrix as ffprobe prints it into quarter turns
// clockwise and a flip after them. A file may carry anything there, so what is
// not near a quarter turn counts as upright, and ok is false.
func parseDisplayMatrix(matrix string) (degrees int, mirrored, ok bool) {
	var m [4]float64 // a b / c d: the picture's x goes to (a, b), its y to (c, d)
	rows := strings.Split(strings.TrimSpace(matrix), "\n")
	if len(rows) != 3 {
		return 0, false, false
	}
	for i, row := range rows[:2] {
		_, numbers, _ := strings.Cut(row, ":")
		fields := strings.Fields(numbers)
		if len(fields) != 3 {
			return 0, false, false
		}
		for j := range 2 {
			v, err := strconv.ParseFloat(fields[j], 64)
			if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
				return 0, false, false
			}
			m[2*i+j] = v
		}
	}
	a, b, c, d := m[0], m[1], m[2], m[3]
	mirrored = a*d-b*c < 0
	if mirrored {
		// Turn first, flip after: take the flip of x out again.
		a, c = -a, -c
	}
	switch {
	case isQuarterTurn(a, d, b, c) && a > 0 && d > 0:
		return 0, mirrored, true
	case isQuarterTurn(a, d, b, c) && a < 0 && d < 0:
		return 180, mirrored, true
	case isQuarterTurn(b, c, a, d) && b > 0 && c < 0:
		return 90, mirrored, true
	case isQuarterTurn(b, c, a, d) && b < 0 && c > 0:
		return 270, mirrored, true
	}
	return 0, false, false
}

// quarter reports whether two of a matrix's numbers are of one size, or nearly
// so, and the other two nothing beside them.
func isQuarterTurn(x, y, off1, off2 float64) bool {
	lo, hi := min(math.Abs(x), math.Abs(y)), max(math.Abs(x), math.Abs(y))
	return hi <= 10*lo && max(math.Abs(off1), math.Abs(off2)) <= 0.02*lo
}
