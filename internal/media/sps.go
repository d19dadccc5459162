package media

import (
	"bytes"
	"fmt"

	"github.com/Eyevinn/mp4ff/bits"
)

// The types of H.264's NAL units.
const (
	nalSlice, nalIDR, nalSEI, nalSPS, nalPPS, nalDelimiter, nalFiller = 1, 5, 6, 7, 8, 9, 12
	// maxParameterBytes is far above the size of a parameter set.
	maxParameterBytes = 256
	// maxReordered is H.264's limit.
	maxReordered = 16
)

func nalType(header byte) int { return int(header & 0x1f) }

// bt709 is the number of BT.709 in H.264 and MP4, as primaries, transfer function and matrix.
const bt709 = 1

// spsParameters are what the ladder fixes of H.264's sequence parameters.
type spsParameters struct {
	profile, level            int
	chroma, lumaBits, chrBits uint // chroma is 1 for 4:2:0; bits are those above 8
	width, height             int
	hasSquarePixels           bool
	isBT709                   bool // in limited range; also if it does not say
	reordered                 int  // how many frames B-frames delay the picture; -1 if it does not say
}

// check checks the parameters that all rungs have.
func (p *spsParameters) check() error {
	const baseline, main, high = 66, 77, 100 // x264 names the lowest profile that it needs
	switch {
	case p.profile != baseline && p.profile != main && p.profile != high,
		p.chroma != 1 || p.lumaBits != 0 || p.chrBits != 0:
		return fmt.Errorf("its profile is not H.264 High with 4:2:0 and 8 bits")
	case !p.hasSquarePixels:
		return fmt.Errorf("its H.264 parameters say that its pixels are not square")
	case !p.isBT709:
		return fmt.Errorf("its H.264 parameters say other colours than BT.709 in limited range")
	}
	return nil
}

// parseSPS reads sequence parameters of progressive H.264. The library's own parser
// allocates memory for as many elements as the parameters declare, up to all of it;
// this one accepts only what our encoders write, which has no lists.
func parseSPS(nalu []byte) (*spsParameters, error) {
	if len(nalu) < 4 || len(nalu) > maxParameterBytes || nalType(nalu[0]) != nalSPS {
		return nil, fmt.Errorf("its H.264 parameters cannot be read")
	}
	r := bits.NewEBSPReader(bytes.NewReader(nalu[4:]))
	p := &spsParameters{profile: int(nalu[1]), level: int(nalu[3]), chroma: 1, hasSquarePixels: true, isBT709: true, reordered: -1}
	r.ReadExpGolomb() // the number of the parameters
	lists := false
	if p.profile >= 100 {
		p.chroma, p.lumaBits, p.chrBits = r.ReadExpGolomb(), r.ReadExpGolomb(), r.ReadExpGolomb()
		r.ReadFlag() // lossless coding
		lists = r.ReadFlag()
	}
	r.ReadExpGolomb() // the length of frame numbers
	switch r.ReadExpGolomb() {
	case 0:
		r.ReadExpGolomb() // the length of picture orders
	case 1:
		lists = true
	}
	r.ReadExpGolomb() // reference frames
	r.ReadFlag()      // gaps in frame numbers
	w, h := r.ReadExpGolomb(), r.ReadExpGolomb()
	progressive := r.ReadFlag()
	r.ReadFlag() // direct prediction
	var left, right, top, bottom uint
	if r.ReadFlag() {
		left, right, top, bottom = r.ReadExpGolomb(), r.ReadExpGolomb(), r.ReadExpGolomb(), r.ReadExpGolomb()
	}
	if r.ReadFlag() {
		p.parseVUI(r)
	}
	const maxMacroblocks, maxCrop = maxEncodedSide/16 + 1, 16
	switch {
	case r.AccError() != nil:
		return nil, fmt.Errorf("its H.264 parameters are cut short")
	case lists || !progressive || w >= maxMacroblocks || h >= maxMacroblocks ||
		max(left, right, top, bottom) > maxCrop:
		return nil, fmt.Errorf("its H.264 parameters are not those of progressive video without lists")
	}
	// 4:2:0 crops pairs of pixels.
	p.width, p.height = 16*int(w+1)-2*int(left+right), 16*int(h+1)-2*int(top+bottom)
	return p, nil
}

// parseVUI reads how the picture is shown (H.264 annex E).
func (p *spsParameters) parseVUI(r *bits.EBSPReader) {
	const square, extended, unspecified = 1, 255, 2
	if r.ReadFlag() {
		ratio := r.Read(8)
		if p.hasSquarePixels = ratio <= square; ratio == extended {
			width := r.Read(16)
			p.hasSquarePixels = width == r.Read(16)
		}
	}
	if r.ReadFlag() {
		r.ReadFlag() // overscan
	}
	if r.ReadFlag() {
		r.Read(3) // the system of the camera
		p.isBT709 = !r.ReadFlag()
		if r.ReadFlag() {
			for range 3 {
				c := r.Read(8)
				p.isBT709 = p.isBT709 && (c == bt709 || c == unspecified)
			}
		}
	}
	if r.ReadFlag() {
		r.ReadExpGolomb() // where the chroma samples are
		r.ReadExpGolomb()
	}
	if r.ReadFlag() {
		r.Read(32) // the clock
		r.Read(32)
		r.ReadFlag()
	}
	if r.Read(2) != 0 {
		return // the rate's parameters, which x264 does not write
	}
	r.ReadFlag() // times of fields
	if r.ReadFlag() {
		r.ReadFlag() // motion beyond the edges
		for range 4 {
			r.ReadExpGolomb()
		}
		p.reordered = int(min(r.ReadExpGolomb(), maxReordered))
		r.ReadExpGolomb() // frames in the decoder
	}
}
