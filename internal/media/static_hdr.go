package media

import (
	"encoding/binary"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/Eyevinn/mp4ff/mp4"
)

// StaticHDR is the static metadata of HDR10, for displays that map the brightness: the payloads of the boxes mdcv and clli.
type StaticHDR struct {
	MasteringDisplay  []byte `json:"mastering_display,omitempty"`
	ContentLightLevel []byte `json:"content_light_level,omitempty"`
}

// staticHDRField is a field of ffprobe's side data. Its versions put different names before it.
var staticHDRField = regexp.MustCompile(
	`\b((?:red|green|blue|white_point)_[xy]|min_luminance|max_luminance|max_content|max_average)=(\d+(?:/\d+)?)`)

// parseStaticHDR reads side data of frames and streams; the result is nil if there is none.
func parseStaticHDR(text []byte) *StaticHDR {
	values := make(map[string]float64)
	for _, m := range staticHDRField.FindAllSubmatch(text, -1) {
		name, value := string(m[1]), string(m[2])
		if !strings.Contains(value, "/") {
			value += "/1"
		}
		if values[name] == 0 {
			values[name] = parseRatio(value)
		}
	}
	h := &StaticHDR{}
	scaled := func(name string, unit, most float64) uint32 { return uint32(min(math.Round(values[name]*unit), most)) }
	if values["max_luminance"] > 0 {
		for _, name := range []string{"green", "blue", "red", "white_point"} {
			h.MasteringDisplay = binary.BigEndian.AppendUint16(h.MasteringDisplay, uint16(scaled(name+"_x", 50000, math.MaxUint16)))
			h.MasteringDisplay = binary.BigEndian.AppendUint16(h.MasteringDisplay, uint16(scaled(name+"_y", 50000, math.MaxUint16)))
		}
		h.MasteringDisplay = binary.BigEndian.AppendUint32(h.MasteringDisplay, scaled("max_luminance", 10000, math.MaxUint32))
		h.MasteringDisplay = binary.BigEndian.AppendUint32(h.MasteringDisplay, scaled("min_luminance", 10000, math.MaxUint32))
	}
	if values["max_content"] > 0 {
		h.ContentLightLevel = binary.BigEndian.AppendUint16(nil, uint16(scaled("max_content", 1, math.MaxUint16)))
		h.ContentLightLevel = binary.BigEndian.AppendUint16(h.ContentLightLevel, uint16(scaled("max_average", 1, math.MaxUint16)))
	}
	if h.MasteringDisplay == nil && h.ContentLightLevel == nil {
		return nil
	}
	return h
}

// boxes are the children of a sample entry.
func (h *StaticHDR) boxes() []mp4.Box {
	if h == nil {
		return nil
	}
	box := func(name string, payload []byte) mp4.Box {
		return mp4.CreateUnknownBox(name, uint64(8+len(payload)), payload)
	}
	all := []mp4.Box{box("mdcv", h.MasteringDisplay), box("clli", h.ContentLightLevel)}
	return slices.DeleteFunc(all, func(b mp4.Box) bool { return b.Size() == 8 })
}
