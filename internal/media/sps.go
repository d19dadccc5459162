package media

import (
	"bytes"
	"fmt"

	"github.com/Eyevinn/mp4ff/bits"
)

// spsParameters are what the ladder fixes of H.264's sequence parameters.
type spsParameters struct {
	profile, level            int
	chroma, lumaBits, chrBits uint // chroma is 1 for 4:2:0; bits are those above 8
	width, height             int
}

// parseSPS reads sequence parameters of progressive H.264. The library's own parser
// allocates memory for as many elements as the parameters declare, up to all of it;
// this one accepts only what our encoders write, which has no lists.
func parseSPS(nalu []byte) (*spsParameters, error) {
	const maxBytes, sequenceParameters = 256, 7
	if len(nalu) < 4 || len(nalu) > maxBytes || nalu[0]&0x1f != sequenceParameters {
		return nil, fmt.Errorf("its H.264 parameters cannot be read")
	}
	r := bits.NewEBSPReader(bytes.NewReader(nalu[4:]))
	p := &spsParameters{profile: int(nalu[1]), level: int(nalu[3]), chroma: 1}
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
