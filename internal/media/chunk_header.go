package media

import (
	"bytes"
	"fmt"

	"github.com/Eyevinn/mp4ff/mp4"
)

// chunkHeader returns what a decoder needs of a video rendition's initialization segment. Two chunks with the same
// one can be played with the initialization segment of either. The rest differs between versions of ffmpeg: the
// name of the encoder, the bitrate, and metadata.
func chunkHeader(init []byte) ([]byte, error) {
	parsed, err := decodeMP4(bytes.NewReader(init))
	if err != nil {
		return nil, err
	}
	if parsed.Init == nil || parsed.Init.Moov == nil || parsed.Init.Moov.Mvex == nil || parsed.Init.Moov.Trak == nil {
		return nil, fmt.Errorf("it does not have a fragmented track")
	}
	trak, trex := parsed.Init.Moov.Trak, parsed.Init.Moov.Mvex.Trex
	if trex == nil || trak.Tkhd == nil || trak.Edts == nil || trak.Mdia == nil || trak.Mdia.Mdhd == nil ||
		trak.Mdia.Minf == nil || trak.Mdia.Minf.Stbl == nil || trak.Mdia.Minf.Stbl.Stsd == nil ||
		trak.Mdia.Minf.Stbl.Stsd.AvcX == nil {
		return nil, fmt.Errorf("it does not describe H.264")
	}
	entry := trak.Mdia.Minf.Stbl.Stsd.AvcX
	var b bytes.Buffer
	fmt.Fprintf(&b, "track %d, %d ticks a second, %s of %dx%d pixels;", trak.Tkhd.TrackID, trak.Mdia.Mdhd.Timescale,
		entry.Type(), entry.Width, entry.Height)
	for _, box := range append([]mp4.Box{trex, trak.Edts}, entry.Children...) {
		if box.Type() == "btrt" {
			continue
		}
		if err := box.Encode(&b); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}
