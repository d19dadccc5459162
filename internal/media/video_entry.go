package media

import (
	"bytes"
	"fmt"

	"github.com/Eyevinn/mp4ff/av1"
	"github.com/Eyevinn/mp4ff/avc"
	"github.com/Eyevinn/mp4ff/hevc"
	"github.com/Eyevinn/mp4ff/mp4"
)

// readVideoEntry reads the sample entry of a video rendition, and checks that it and the parameter sets in it say the same.
func (s *renditionFiles) readVideoEntry(entry *mp4.VisualSampleEntryBox) (err error) {
	switch {
	case entry.Type() == "avc1" && entry.AvcC != nil:
		err = s.readAVC(entry.AvcC)
	case entry.Type() == "hvc1" && entry.HvcC != nil:
		err = s.readHEVC(entry.HvcC)
	case entry.Type() == "av01" && entry.Av1C != nil:
		err = s.readAV1(entry.Av1C)
	default:
		err = fmt.Errorf("its codec is not H.264, HEVC or AV1")
	}
	if err != nil {
		return err
	}
	s.width, s.height = s.picture.width, s.picture.height
	if int(entry.Width) != s.width || int(entry.Height) != s.height {
		return fmt.Errorf("it is %dx%d pixels, but its parameters say %dx%d", entry.Width, entry.Height, s.width, s.height)
	}
	if pasp := entry.Pasp; pasp != nil && pasp.HSpacing != pasp.VSpacing {
		return fmt.Errorf("its pixels are not square")
	}
	for _, box := range entry.Children {
		if colr, ok := box.(*mp4.ColrBox); ok && !rungColours[s.picture.hdr()].isIn(colr) {
			return fmt.Errorf("its colours are not those of its parameters in limited range")
		}
	}
	return s.picture.check()
}

func (c colourCode) isIn(box *mp4.ColrBox) bool {
	return box.ColorType == mp4.ColorTypeOnScreenColors && int(box.ColorPrimaries) == c.primaries &&
		int(box.TransferCharacteristics) == c.transfer && int(box.MatrixCoefficients) == c.matrix && !box.FullRangeFlag
}

func (s *renditionFiles) readAVC(config *mp4.AvcCBox) (err error) {
	if len(config.SPSnalus) != 1 || len(config.PPSnalus) == 0 {
		return fmt.Errorf("it does not have one set of H.264 parameters")
	}
	s.parameters = append(config.SPSnalus[:1:1], config.PPSnalus...)
	if s.picture, err = parseSPS(s.parameters[0]); err != nil {
		return err
	}
	for _, pps := range s.parameters[1:] {
		if len(pps) < 2 || len(pps) > maxParameterBytes || nalType(pps[0]) != nalPPS {
			return fmt.Errorf("its H.264 picture parameters cannot be read")
		}
	}
	said := []byte{config.AVCProfileIndication, config.ProfileCompatibility, config.AVCLevelIndication}
	if !bytes.Equal(s.parameters[0][1:4], said) {
		return fmt.Errorf("its codec string differs from its parameters")
	}
	s.codecs = fmt.Sprintf("avc1.%x", said)
	return nil
}

func (s *renditionFiles) readHEVC(config *mp4.HvcCBox) error {
	sets := map[hevc.NaluType][][]byte{}
	for _, array := range config.NaluArrays {
		sets[array.NaluType()] = append(sets[array.NaluType()], array.Nalus...)
	}
	s.parameters = nil
	for _, kind := range []hevc.NaluType{hevc.NALU_VPS, hevc.NALU_SPS, hevc.NALU_PPS} {
		if len(sets[kind]) != 1 || len(sets[kind][0]) < 3 || len(sets[kind][0]) > maxParameterBytes || hevcType(sets[kind][0]) != kind {
			return fmt.Errorf("it does not have one set of HEVC parameters of each kind")
		}
		s.parameters = append(s.parameters, sets[kind][0])
	}
	picture, sps, err := parseHEVC(s.parameters[1])
	if err != nil {
		return err
	}
	s.picture, s.codecs = picture, hevc.CodecString("hvc1", sps)
	return nil
}

func (s *renditionFiles) readAV1(config *mp4.Av1CBox) (err error) {
	s.parameters = [][]byte{config.ConfigOBUs}
	if s.picture, err = parseAV1(config.ConfigOBUs); err != nil {
		return err
	}
	if int(config.SeqProfile) != s.picture.profile || int(config.SeqLevelIdx0) != s.picture.level || config.SeqTier0 != 0 {
		return fmt.Errorf("its codec string differs from its parameters")
	}
	s.codecs = fmt.Sprintf("av01.%d.%02dM.%02d", s.picture.profile, s.picture.level, 8+s.picture.bits)
	return nil
}

// videoEntry is the sample entry of a video rendition with the parameter sets that were read.
func (s *renditionFiles) videoEntry() (mp4.Box, error) {
	name, config := "avc1", mp4.Box(nil)
	switch s.picture.codec {
	case h264Codec:
		sps := s.parameters[0]
		config = &mp4.AvcCBox{DecConfRec: avc.DecConfRec{
			AVCProfileIndication: sps[1], ProfileCompatibility: sps[2], AVCLevelIndication: sps[3],
			SPSnalus: s.parameters[:1], PPSnalus: s.parameters[1:], ChromaFormat: 1,
		}}
	case hevcCodec:
		box, err := mp4.CreateHvcC(s.parameters[:1], s.parameters[1:2], s.parameters[2:], true, true, true, true)
		if err != nil {
			return nil, err
		}
		box.NumTemporalLayers, box.TemporalIDNested = 1, 1
		name, config = "hvc1", box
	case av1Codec:
		deep := byte(min(s.picture.bits, 1))
		name, config = "av01", &mp4.Av1CBox{CodecConfRec: av1.CodecConfRec{
			Version: 1, SeqProfile: byte(s.picture.profile), SeqLevelIdx0: byte(s.picture.level), HighBitdepth: deep,
			ChromaSubsamplingX: 1, ChromaSubsamplingY: 1, ConfigOBUs: s.parameters[0],
		}}
	}
	entry := mp4.CreateVisualSampleEntryBox(name, uint16(s.width), uint16(s.height), config)
	entry.CompressorName = ""
	colour := rungColours[s.picture.hdr()]
	entry.AddChild(&mp4.ColrBox{
		ColorType: mp4.ColorTypeOnScreenColors, ColorPrimaries: uint16(colour.primaries),
		TransferCharacteristics: uint16(colour.transfer), MatrixCoefficients: uint16(colour.matrix),
	})
	entry.AddChild(&mp4.PaspBox{HSpacing: 1, VSpacing: 1})
	return entry, nil
}
