package media

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/Eyevinn/mp4ff/mp4"
)

// priming is the silence ffmpeg's AAC encoder puts in front, in samples.
const encoderDelay = 1024

// mendHeader rewrites a header's edit list, so that the first frame, or the
// first sample that is not priming, is at 0, and names the brands that CMAF
// players look for. skip is the first frame's time in ticks. ffmpeg writes a
// list that shows the picture as late as its B-frames need, and the sound as
// late as its encoder primes; together an offset that may be seen.
func fixInit(file string, skip int64) error {
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	parsed, err := decodeMP4(bytes.NewReader(before))
	if err != nil {
		return err
	}
	if parsed.Init == nil || parsed.Init.Moov == nil || parsed.Init.Moov.Trak == nil {
		return fmt.Errorf("it describes no track")
	}
	moov := parsed.Init.Moov
	trak := moov.Trak
	children := trak.Children[:0:0]
	for _, box := range trak.Children {
		if box.Type() == "edts" {
			continue
		}
		children = append(children, box)
		if box.Type() == "tkhd" {
			children = append(children, editList(skip))
		}
	}
	trak.Children = children
	parsed.Init.Ftyp = mp4.NewFtyp("iso6", 0, []string{"iso6", "cmfc", "mp41"})
	parsed.Init.Children[0] = parsed.Init.Ftyp

	var after bytes.Buffer
	if err := parsed.Init.Encode(&after); err != nil {
		return err
	}
	return writeFile(file, after.Bytes())
}

// decodeMP4 is mp4.DecodeFile for what a disk may have made of our files: of
// blocks that are all zero it panics.
func decodeMP4(r io.Reader, options ...mp4.Option) (f *mp4.File, err error) {
	defer func() {
		if v := recover(); v != nil {
			f, err = nil, fmt.Errorf("it is damaged: %v", v)
		}
	}()
	return mp4.DecodeFile(r, options...)
}

// edits shows a track from a certain tick on.
func editList(skip int64) *mp4.EdtsBox {
	elst := &mp4.ElstBox{Entries: []mp4.ElstEntry{{MediaTime: skip, MediaRateInteger: 1}}}
	return &mp4.EdtsBox{Elst: []*mp4.ElstBox{elst}, Children: []mp4.Box{elst}}
}
