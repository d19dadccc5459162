package media

import (
	"bytes"
	"fmt"
	"os"

	"github.com/Eyevinn/mp4ff/aac"
	"github.com/Eyevinn/mp4ff/mp4"
)

// checkTree walks the boxes of a file before a parser reads it.
func checkTree(file string, tree boxTree) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	return tree.check(f, st.Size())
}

// checkInit checks that an initialization segment describes one track as the ladder
// asks: H.264 4:2:0 of the rung's size, or AAC-LC stereo at 48 kHz, in this file.
func checkInit(file string, j renditionJob, maxLevel int) error {
	if err := checkTree(file, initBoxes); err != nil {
		return fmt.Errorf("initialization segment: %w", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	parsed, err := decodeMP4(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("initialization segment: %w", err)
	}
	if parsed.Init == nil || parsed.Init.Moov == nil || len(parsed.Init.Moov.Traks) != 1 {
		return fmt.Errorf("its initialization segment does not have exactly one track")
	}
	trak := parsed.Init.Moov.Trak
	if trak.Mdia == nil || trak.Mdia.Hdlr == nil || trak.Mdia.Minf == nil || trak.Mdia.Minf.Stbl == nil ||
		trak.Mdia.Minf.Stbl.Stsd == nil || len(trak.Mdia.Minf.Stbl.Stsd.Children) != 1 {
		return fmt.Errorf("its initialization segment does not have exactly one sample entry")
	}
	if !isSelfContained(trak.Mdia.Minf.Dinf) {
		return fmt.Errorf("its initialization segment refers to another file")
	}
	entry := trak.Mdia.Minf.Stbl.Stsd
	if j.audio != nil {
		return checkAudioEntry(trak.Mdia.Hdlr.HandlerType, entry.Mp4a)
	}
	return checkVideoEntry(trak.Mdia.Hdlr.HandlerType, entry.AvcX, j.rung, maxLevel)
}

// isSelfContained reports whether the media data is in the same file.
func isSelfContained(dinf *mp4.DinfBox) bool {
	if dinf == nil || dinf.Dref == nil || len(dinf.Dref.Children) != 1 {
		return false
	}
	const sameFile = 1
	url, ok := dinf.Dref.Children[0].(*mp4.URLBox)
	return ok && url.Flags&sameFile != 0
}

func checkAudioEntry(handler string, entry *mp4.AudioSampleEntryBox) error {
	if handler != "soun" || entry == nil || entry.Esds == nil || entry.Esds.DecConfigDescriptor == nil ||
		entry.Esds.DecConfigDescriptor.DecSpecificInfo == nil {
		return fmt.Errorf("its codec is not AAC")
	}
	const aacObject, lowComplexity, stereo = 0x40, 2, 2
	config, err := aac.DecodeAudioSpecificConfig(bytes.NewReader(entry.Esds.DecConfigDescriptor.DecSpecificInfo.DecConfig))
	if err != nil || entry.Esds.DecConfigDescriptor.ObjectType != aacObject || config.ObjectType != lowComplexity {
		return fmt.Errorf("its codec is not AAC-LC")
	}
	if config.SamplingFrequency != sampleRate || config.ChannelConfiguration != stereo ||
		entry.ChannelCount != stereo || int(entry.SampleRate) != sampleRate {
		return fmt.Errorf("it is not stereo at %d Hz", sampleRate)
	}
	return nil
}

func checkVideoEntry(handler string, entry *mp4.VisualSampleEntryBox, r Rung, maxLevel int) error {
	if handler != "vide" || entry == nil || entry.Type() != "avc1" || entry.AvcC == nil ||
		len(entry.AvcC.SPSnalus) != 1 || len(entry.AvcC.PPSnalus) == 0 {
		return fmt.Errorf("its codec is not H.264")
	}
	sps, err := parseSPS(entry.AvcC.SPSnalus[0])
	if err != nil {
		return err
	}
	const baseline, main, high = 66, 77, 100 // x264 names the lowest profile that it needs
	config := entry.AvcC
	switch {
	case sps.profile != baseline && sps.profile != main && sps.profile != high,
		sps.chroma != 1 || sps.lumaBits != 0 || sps.chrBits != 0:
		return fmt.Errorf("its profile is not H.264 High with 4:2:0 and 8 bits")
	case int(config.AVCProfileIndication) != sps.profile || int(config.AVCLevelIndication) != sps.level:
		return fmt.Errorf("its codec string differs from its parameters")
	case sps.level > maxLevel:
		return fmt.Errorf("its H.264 level is %d; the highest for its rung is %d", sps.level, maxLevel)
	case sps.width != r.Width || sps.height != r.Height || int(entry.Width) != r.Width || int(entry.Height) != r.Height:
		return fmt.Errorf("it is %dx%d pixels instead of %dx%d", sps.width, sps.height, r.Width, r.Height)
	}
	return nil
}

// cleanInit is fixInit for a delivered file: it also removes the metadata, which
// players do not need.
func cleanInit(file string, editStart int64) error {
	return rewriteMP4(file, func(parsed *mp4.File) (encoder, error) {
		if parsed.Init == nil || parsed.Init.Moov == nil {
			return nil, fmt.Errorf("it has no track")
		}
		moov := parsed.Init.Moov
		children := moov.Children[:0:0]
		for _, box := range moov.Children {
			if box.Type() != "udta" {
				children = append(children, box)
			}
		}
		moov.Children = children
		return presentFrom(parsed, editStart)
	})
}
