package media

import (
	"bytes"
	"fmt"
	"os"

	"github.com/Eyevinn/mp4ff/bits"
	"github.com/Eyevinn/mp4ff/mp4"
)

// The types of AV1's OBUs that a frame may have.
const (
	obuSequence, obuFrameHeader, obuTileGroup, obuMetadata, obuFrame, obuPadding = 1, 3, 4, 5, 6, 15
)

// nextOBU splits the first OBU off data. All have a size (AV1 5.3.1).
func nextOBU(data []byte) (kind int, payload, rest []byte, err error) {
	damaged := fmt.Errorf("its OBUs do not fill it")
	if len(data) < 2 || data[0]&0x83 != 0x02 || data[0]&0x04 != 0 { // forbidden or reserved bits, no size, or an extension
		return 0, nil, nil, damaged
	}
	size, n := 0, 1
	for shift := 0; ; shift += 7 {
		if n == len(data) || shift > 28 {
			return 0, nil, nil, damaged
		}
		b := data[n]
		size |= int(b&0x7f) << shift
		n++
		if b&0x80 == 0 {
			break
		}
	}
	if size > len(data)-n {
		return 0, nil, nil, damaged
	}
	return int(data[0] >> 3), data[n : n+size], data[n+size:], nil
}

// parseAV1 reads an AV1 sequence header (AV1 5.5) of the kind that encoders write for MP4: one operating point, and no timing.
func parseAV1(obus []byte) (*pictureParameters, error) {
	kind, header, rest, err := nextOBU(obus)
	if err != nil || kind != obuSequence || len(rest) > 0 || len(header) > maxParameterBytes {
		return nil, fmt.Errorf("its AV1 parameters are not one sequence header")
	}
	r := bits.NewReader(bytes.NewReader(header))
	p := &pictureParameters{codec: av1Codec, profile: int(r.Read(3)), chroma: 1, hasSquarePixels: true}
	isStill, isReduced := r.ReadFlag(), r.ReadFlag()
	hasTiming, hasDelay, points := r.ReadFlag(), r.ReadFlag(), r.Read(5)
	r.Read(12) // the layers of the operating point
	p.level = int(r.Read(5))
	isHighTier := p.level > 7 && r.ReadFlag()
	widthBits, heightBits := int(r.Read(4))+1, int(r.Read(4))+1
	p.width, p.height = int(r.Read(widthBits))+1, int(r.Read(heightBits))+1
	hasFrameIDs := r.ReadFlag()
	r.Read(3) // superblocks and filters of intra frames
	readAV1Tools(r)
	r.Read(3) // superresolution, cdef, restoration
	p.readAV1Colour(r)
	switch {
	case r.AccError() != nil:
		return nil, fmt.Errorf("its AV1 parameters are cut short")
	case isStill || isReduced || hasTiming || hasDelay || points > 0 || hasFrameIDs || isHighTier || p.width > maxEncodedSide ||
		p.height > maxEncodedSide:
		return nil, fmt.Errorf("its AV1 parameters are not those of one layer in the Main tier, in a size that can be encoded")
	}
	return p, nil
}

// readAV1Tools reads which tools frames may use.
func readAV1Tools(r *bits.Reader) {
	r.Read(4) // compound and warped motion, and filters by direction
	hasOrder := r.ReadFlag()
	if hasOrder {
		r.Read(2) // compound of distances, vectors of references
	}
	screen := uint(2) // chosen by frame
	if !r.ReadFlag() {
		screen = r.Read(1)
	}
	if screen > 0 && !r.ReadFlag() {
		r.Read(1) // integer motion
	}
	if hasOrder {
		r.Read(3) // the length of orders
	}
}

// readAV1Colour reads the format of samples.
func (p *pictureParameters) readAV1Colour(r *bits.Reader) {
	if r.ReadFlag() {
		p.bits = 2
	}
	if isGrey := r.ReadFlag(); isGrey {
		p.chroma = 0
	}
	if r.ReadFlag() {
		p.colour.primaries, p.colour.transfer, p.colour.matrix = int(r.Read(8)), int(r.Read(8)), int(r.Read(8))
	}
	p.colour.isFullRange = r.ReadFlag()
}

// setSequenceHeader puts the sequence header of the first frame into an initialization segment. SVT-AV1 1 writes another one
// there, with tools that it does not use.
func setSequenceHeader(init, segment string) error {
	g, err := readSegment(segment)
	if err != nil {
		return err
	}
	f, err := os.Open(segment)
	if err != nil {
		return err
	}
	defer f.Close()
	frame := make([]byte, min(g.samples[0].size, maxIndexBytes))
	if _, err := f.ReadAt(frame, g.samples[0].offset); err != nil {
		return err
	}
	header, err := sequenceHeader(frame)
	if err != nil {
		return err
	}
	return rewriteMP4(init, func(parsed *mp4.File) (encoder, error) {
		return parsed.Init, setConfigOBUs(parsed, header)
	})
}

// sequenceHeader returns the OBU with the sequence header, with which a keyframe begins.
func sequenceHeader(frame []byte) ([]byte, error) {
	kind, payload, _, err := nextOBU(frame[:min(len(frame), maxParameterBytes)])
	if err != nil || kind != obuSequence {
		return nil, fmt.Errorf("its first frame does not begin with a sequence header")
	}
	return frame[:2+len(payload)], nil // a length below 128 has one byte
}

func setConfigOBUs(parsed *mp4.File, header []byte) error {
	entry := parsed.Init.Moov.Trak.Mdia.Minf.Stbl.Stsd.Av01
	if entry == nil || entry.Av1C == nil {
		return fmt.Errorf("its codec is not AV1")
	}
	entry.Av1C.ConfigOBUs = header
	return nil
}
