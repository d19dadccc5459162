package media

import (
	"fmt"
	"slices"
)

// The codecs of renditions. That of H.264 is empty, because it is the one of every ladder.
const (
	h264Codec = ""
	hevcCodec = "hevc"
	av1Codec  = "av1"
)

// codecName is the name of a codec for messages.
func codecName(codec string) string {
	return map[string]string{h264Codec: "H.264", hevcCodec: "HEVC", av1Codec: "AV1"}[codec]
}

const (
	// maxParameterBytes is far above the size of a parameter set.
	maxParameterBytes = 256
	// maxReordered is the limit of H.264 and HEVC.
	maxReordered = 16
)

// pictureParameters are what the parameter sets of a codec say of all pictures, as far as the ladder fixes it.
type pictureParameters struct {
	codec           string // of a Rung
	profile, level  int    // by the codec's own numbers
	chroma, bits    uint   // chroma is 1 for 4:2:0; bits are those above 8
	width, height   int
	hasSquarePixels bool
	colour          colourCode
	reordered       int // how many frames B-frames delay the picture; -1 if it does not say
}

// colourCode says in the numbers of H.273 how values become light. Zero and 2 mean that it does not say.
type colourCode struct {
	primaries, transfer, matrix int
	isFullRange                 bool
}

// The numbers of H.273.
const (
	bt709, unspecified, bt2020, bt2020Matrix = 1, 2, 9, 9
	pqTransfer, hlgTransfer                  = 16, 18
)

// agrees reports whether a decoder shows what says this as if it said want.
func (c colourCode) agrees(want colourCode) bool {
	is := func(got, want int) bool { return got == want || got == 0 || got == unspecified }
	return is(c.primaries, want.primaries) && is(c.transfer, want.transfer) && is(c.matrix, want.matrix) && !c.isFullRange
}

// rungColours are those of rungs by their dynamic range.
var rungColours = map[string]colourCode{
	"":    {primaries: bt709, transfer: bt709, matrix: bt709},
	"pq":  {primaries: bt2020, transfer: pqTransfer, matrix: bt2020Matrix},
	"hlg": {primaries: bt2020, transfer: hlgTransfer, matrix: bt2020Matrix},
}

// plainProfiles are the profiles of a codec that every decoder of it has. x264 names the lowest one that it needs. hdrProfiles are
// those with 10 bits.
var (
	plainProfiles = map[string][]int{h264Codec: {66, 77, 100}, hevcCodec: {1}, av1Codec: {0}}
	hdrProfiles   = map[string][]int{hevcCodec: {2}, av1Codec: {0}}
)

// hdr is the dynamic range that the parameters say, as in a Rung.
func (p *pictureParameters) hdr() string {
	switch p.colour.transfer {
	case pqTransfer:
		return "pq"
	case hlgTransfer:
		return "hlg"
	}
	return ""
}

// check checks the parameters that all rungs have.
func (p *pictureParameters) check() error {
	profiles, bits, colours := plainProfiles, uint(0), "BT.709"
	if p.hdr() != "" && p.codec != h264Codec {
		profiles, bits, colours = hdrProfiles, 2, "BT.2020"
	}
	switch name := codecName(p.codec); {
	case !slices.Contains(profiles[p.codec], p.profile), p.chroma != 1, p.bits != bits:
		return fmt.Errorf("its profile is not that of %s with 4:2:0 and %d bits for all decoders", name, 8+bits)
	case !p.hasSquarePixels:
		return fmt.Errorf("its %s parameters say that its pixels are not square", name)
	case !p.colour.agrees(rungColours[p.hdr()]):
		return fmt.Errorf("its %s parameters say other colours than %s in limited range", name, colours)
	}
	return nil
}
