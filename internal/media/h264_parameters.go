package media

import (
	"bytes"
	"fmt"

	"github.com/Eyevinn/mp4ff/bits"
)

// The types of H.264's NAL units.
const (
	nalSlice, nalIDR, nalSEI, nalSPS, nalPPS, nalDelimiter, nalFiller = 1, 5, 6, 7, 8, 9, 12
)

func nalType(header byte) int { return int(header & 0x1f) }

// parseSPS reads sequence parameters of progressive H.264. The library's own parser
// allocates memory for as many elements as the parameters declare, up to all of it;
// this one accepts only what our encoders write, which has no lists.
func parseSPS(nalu []byte) (*pictureParameters, error) {
	if len(nalu) < 4 || len(nalu) > maxParameterBytes || nalType(nalu[0]) != nalSPS {
		return nil, fmt.Errorf("its H.264 parameters cannot be read")
	}
	r := bits.NewEBSPReader(bytes.NewReader(nalu[4:]))
	p := &pictureParameters{profile: int(nalu[1]), level: int(nalu[3]), chroma: 1, hasSquarePixels: true, reordered: -1}
	r.ReadExpGolomb() // the number of the parameters
	lists := false
	if p.profile >= 100 {
		p.chroma, p.bits = r.ReadExpGolomb(), max(r.ReadExpGolomb(), r.ReadExpGolomb())
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
func (p *pictureParameters) parseVUI(r *bits.EBSPReader) {
	const square, extended = 1, 255
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
		p.colour.isFullRange = r.ReadFlag()
		if r.ReadFlag() {
			p.colour.primaries, p.colour.transfer, p.colour.matrix = int(r.Read(8)), int(r.Read(8)), int(r.Read(8))
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
