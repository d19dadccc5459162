package media

import (
	"encoding/binary"
	"math"
	"regexp"
	"slices"
	"strconv"

	"github.com/Eyevinn/mp4ff/mp4"
)

// StaticHDR is the static metadata of HDR10, for displays that map the brightness: the payloads of the boxes mdcv and clli.
type StaticHDR struct {
	MasteringDisplay  []byte `json:"mastering_display,omitempty"`
	ContentLightLevel []byte `json:"content_light_level,omitempty"`
}

// The lines of ffprobe's side data. The box has the primaries in the order green, blue, red.
var (
	masteringLine = regexp.MustCompile(`Mastering display metadata\|red_x=(\d+/\d+)\|red_y=(\d+/\d+)\|green_x=(\d+/\d+)\|green_y=(\d+/\d+)` +
		`\|blue_x=(\d+/\d+)\|blue_y=(\d+/\d+)\|white_point_x=(\d+/\d+)\|white_point_y=(\d+/\d+)` +
		`\|min_luminance=(\d+/\d+)\|max_luminance=(\d+/\d+)`)
	lightLevelLine = regexp.MustCompile(`Content light level metadata\|max_content=(\d+)\|max_average=(\d+)`)
	masteringOrder = []int{3, 4, 5, 6, 1, 2, 7, 8}
)

// parseStaticHDR reads side data of frames and streams; the result is nil if there is none.
func parseStaticHDR(text []byte) *StaticHDR {
	h := &StaticHDR{}
	if m := masteringLine.FindSubmatch(text); m != nil {
		scaled := func(i int, unit float64) uint32 {
			return uint32(min(math.Round(parseRatio(string(m[i]))*unit), math.MaxUint32))
		}
		for _, i := range masteringOrder {
			h.MasteringDisplay = binary.BigEndian.AppendUint16(h.MasteringDisplay, uint16(min(scaled(i, 50000), math.MaxUint16)))
		}
		h.MasteringDisplay = binary.BigEndian.AppendUint32(h.MasteringDisplay, scaled(10, 10000))
		h.MasteringDisplay = binary.BigEndian.AppendUint32(h.MasteringDisplay, scaled(9, 10000))
	}
	if m := lightLevelLine.FindSubmatch(text); m != nil {
		for _, value := range m[1:] {
			n, _ := strconv.ParseUint(string(value), 10, 16) // too many are the most
			h.ContentLightLevel = binary.BigEndian.AppendUint16(h.ContentLightLevel, uint16(n))
		}
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
