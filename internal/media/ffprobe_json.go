package media

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// rawProbe is ffprobe's JSON. Numbers are strings or missing.
type rawProbe struct {
	Streams  []rawStream    `json:"streams"`
	Programs []rawProgramme `json:"programs"`
	Chapters []struct {
		Start jsonNumber        `json:"start_time"`
		End   jsonNumber        `json:"end_time"`
		Tags  map[string]string `json:"tags"`
	} `json:"chapters"`
	Format struct {
		Name     string     `json:"format_name"`
		Start    jsonNumber `json:"start_time"`
		Duration jsonNumber `json:"duration"`
	} `json:"format"`

	// rejectedSize is the size of a picture above the pixel limit, such as
	// "16000x16000". ffprobe then reports no size for its stream.
	rejectedSize string
	// hasMoreChapters means that they are too many to be read.
	hasMoreChapters bool
	// truncated means that the file ends before its container says so.
	truncated bool
	joins     *Joins
	// jumpsTooOften means that the clock has more jumps than joins can undo.
	jumpsTooOften bool
	byStream      map[int][]int // see programmesOf
}

// rawProgramme is a programme of a transport stream.
type rawProgramme struct {
	ID      int               `json:"program_id"`
	Tags    map[string]string `json:"tags"`
	Streams []struct {
		Index int `json:"index"`
	} `json:"streams"`
}

type rawStream struct {
	Index       int        `json:"index"`
	ID          string     `json:"id"`
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
	TimeBase    string     `json:"time_base"`
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
		SDH      int `json:"hearing_impaired"`
		Dub      int `json:"dub"`
	} `json:"disposition"`
	Tags     map[string]string `json:"tags"`
	SideData []struct {
		Type          string `json:"side_data_type"`
		Matrix        string `json:"displaymatrix"`
		DoViProfile   int    `json:"dv_profile"`
		Compatibility *int   `json:"dv_bl_signal_compatibility_id"`
	} `json:"side_data_list"`
}

// jsonNumber is a JSON string or number; ffprobe's versions differ.
type jsonNumber string

// UnmarshalJSON accepts both.
func (t *jsonNumber) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err == nil {
		*t = jsonNumber(s)
		return nil
	}
	*t = jsonNumber(strings.TrimSpace(string(b)))
	return nil
}

// seconds parses a finite number; ok is false for "N/A".
func (t jsonNumber) seconds() (v float64, ok bool) {
	v, err := strconv.ParseFloat(string(t), 64)
	return v, err == nil && !math.IsNaN(v) && math.Abs(v) < maxTimestamp
}

// maxTimestamp limits every time from a file to about 30 years, so that neither
// nanoseconds nor ticks of 1/120000 s overflow.
const maxTimestamp = 1e9

func parseProbe(b []byte) (*rawProbe, error) {
	raw := &rawProbe{}
	if err := json.Unmarshal(b, raw); err != nil {
		return nil, fmt.Errorf("parse ffprobe's output: %w", err)
	}
	return raw, nil
}

// parseRatio parses "30000/1001" or "64:45". Anything invalid is 0.
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

// tag finds a tag in any letter case; demuxers differ.
func (s *rawStream) tag(name string) string {
	for k, v := range s.Tags {
		if strings.EqualFold(k, name) {
			return v
		}
	}
	return ""
}

// codec returns the codec's name, or the container's tag if ffmpeg does not know
// the codec.
func (s *rawStream) codec() (name string, known bool) {
	if s.Codec != "" && s.Codec != "unknown" && s.Codec != "none" {
		return s.Codec, true
	}
	if s.Tag != "" && !strings.HasPrefix(s.Tag, "[0]") {
		return s.Tag, false
	}
	return "unknown", false
}

// parseDisplayMatrix converts the display matrix that ffprobe prints into a
// clockwise rotation and a flip after it. A matrix that is not near a quarter
// turn gives ok = false and no rotation.
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
		// The rotation comes first, so remove the flip of x.
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

// isQuarterTurn reports whether x and y have a similar size and the other two
// numbers of the matrix are negligible.
func isQuarterTurn(x, y, off1, off2 float64) bool {
	lo, hi := min(math.Abs(x), math.Abs(y)), max(math.Abs(x), math.Abs(y))
	return hi <= 10*lo && max(math.Abs(off1), math.Abs(off2)) <= 0.02*lo
}
