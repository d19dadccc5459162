package media

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/Eyevinn/mp4ff/hevc"
)

// checkPicture checks that a frame consists of the units that its codec allows there, and that these fill it.
func (s *renditionFiles) checkPicture(frame sample, data []byte) error {
	switch s.picture.codec {
	case hevcCodec:
		return s.checkNALs(data, hevcUnit(frame.isKey))
	case av1Codec:
		return s.checkOBUs(frame, data)
	}
	return s.checkNALs(data, h264Unit(frame.isKey))
}

// unitKind is what a NAL unit is in its frame.
type unitKind int

const (
	otherUnit unitKind = iota // not allowed
	sliceUnit
	parameterUnit // allowed if it repeats one of the header, as some devices do. Others would override it
	messageUnit   // decoders may ignore it
)

func h264Unit(isKey bool) func([]byte) unitKind {
	return func(unit []byte) unitKind {
		switch kind := nalType(unit[0]); {
		case isKey && kind == nalIDR, !isKey && kind == nalSlice:
			return sliceUnit
		case kind == nalSPS, kind == nalPPS:
			return parameterUnit
		case kind == nalSEI, kind == nalDelimiter, kind == nalFiller:
			return messageUnit
		}
		return otherUnit
	}
}

func hevcUnit(isKey bool) func([]byte) unitKind {
	return func(unit []byte) unitKind {
		switch kind := hevcType(unit); kind {
		case hevc.NALU_IDR_W_RADL, hevc.NALU_IDR_N_LP:
			if isKey {
				return sliceUnit
			}
		case hevc.NALU_VPS, hevc.NALU_SPS, hevc.NALU_PPS:
			return parameterUnit
		case hevc.NALU_AUD, hevc.NALU_FD, hevc.NALU_SEI_PREFIX, hevc.NALU_SEI_SUFFIX:
			return messageUnit
		default:
			if !isKey && kind <= hevc.NALU_RADL_R {
				return sliceUnit
			}
		}
		return otherUnit
	}
}

// checkNALs checks the NAL units of a frame, each of which follows its length.
func (s *renditionFiles) checkNALs(data []byte, kindOf func([]byte) unitKind) error {
	found := false
	for len(data) > 0 {
		const lengthBytes = 4
		end := int64(lengthBytes)
		if len(data) > lengthBytes {
			end += int64(binary.BigEndian.Uint32(data))
		}
		if end == lengthBytes || end > int64(len(data)) {
			return fmt.Errorf("its NAL units do not fill it")
		}
		unit := data[lengthBytes:end]
		data = data[end:]
		kind := kindOf(unit)
		switch {
		case kind == otherUnit:
			return fmt.Errorf("it has a NAL unit that begins with %#x", unit[0])
		case kind == parameterUnit && !s.hasParameters(unit):
			return fmt.Errorf("it has other parameters than the header")
		}
		// Emulation prevention (H.264 7.4.1) leaves no three zeros. A lost block on a disk has them.
		if unit[0]&0x80 != 0 || bytes.Contains(unit, []byte{0, 0, 0}) {
			return fmt.Errorf("it has a damaged NAL unit")
		}
		found = found || kind == sliceUnit
	}
	if !found {
		return fmt.Errorf("it has no picture")
	}
	return nil
}

func (s *renditionFiles) hasParameters(set []byte) bool {
	return slices.ContainsFunc(s.parameters, func(p []byte) bool { return bytes.Equal(p, set) })
}

// checkOBUs checks the OBUs of an AV1 frame.
func (s *renditionFiles) checkOBUs(frame sample, data []byte) error {
	found := false
	for len(data) > 0 {
		kind, payload, rest, err := nextOBU(data)
		if err != nil {
			return err
		}
		unit := data[:len(data)-len(rest)]
		data = rest
		switch kind {
		case obuSequence:
			if !s.hasParameters(unit) {
				return fmt.Errorf("it has other parameters than the header")
			}
		case obuFrame, obuFrameHeader:
			// The first four bits: does it show a frame that was decoded before, its type, is it shown.
			const shownKeyframe = 0b0001
			if isFirst := !found; isFirst && (len(payload) > 0 && payload[0]>>4 == shownKeyframe) != frame.isKey {
				return fmt.Errorf("it is a keyframe where none should be, or none where one should be")
			}
			found = true
		case obuTileGroup, obuMetadata, obuPadding:
		default:
			return fmt.Errorf("it has an OBU of the type %d", kind)
		}
	}
	if !found {
		return fmt.Errorf("it has no picture")
	}
	return nil
}
