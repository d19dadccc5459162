package media

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/Eyevinn/mp4ff/mp4"
)

// trackID is that of the only track in every file.
const trackID = 1

// aacConfig is the decoder configuration of AAC-LC with so many channels at 48 kHz, without spectral band replication, as
// ffmpeg writes it. Up to 5.1, the number of the configuration is that of the channels.
func aacConfig(channels int) string {
	return string([]byte{0x11, byte(0x80 | channels<<3), 0x56, 0xe5, 0})
}

// writeInit replaces the initialization segment of a rendition. Of the one that an encoder made, only the parameter sets
// remain, which must be those of the rung. The presentation starts at the tick editStart: ffmpeg's own edit list
// delays the picture by its B-frames and the audio by the encoder delay, which puts them visibly out of sync.
func writeInit(file string, j renditionJob, info *Info, plan timing, editStart int64) error {
	var s renditionFiles
	if err := s.readInit(file); err != nil {
		return err
	}
	if err := s.checkRung(j, info, plan); err != nil {
		return err
	}
	init := mp4.CreateEmptyInit()
	init.Ftyp = mp4.NewFtyp("iso6", 0, []string{"iso6", "cmfc", "mp41"})
	init.Children[0] = init.Ftyp
	entry, err := s.sampleEntry(j.rung)
	if err != nil {
		return err
	}
	if picture, ok := entry.(*mp4.VisualSampleEntryBox); ok && j.rung.HDR != "" {
		for _, box := range info.Video.StaticHDR.boxes() {
			picture.AddChild(box)
		}
	}
	init.AddEmptyTrack(uint32(s.timescale), map[bool]string{true: "video", false: "audio"}[j.audio == nil], "und")
	trak := init.Moov.Trak
	trak.Tkhd.Width, trak.Tkhd.Height = mp4.Fixed32(s.width<<16), mp4.Fixed32(s.height<<16)
	trak.Mdia.Minf.Stbl.Stsd.AddChild(entry)
	elst := &mp4.ElstBox{Entries: []mp4.ElstEntry{{MediaTime: editStart, MediaRateInteger: 1}}}
	trak.Children = slices.Insert(trak.Children, 1, mp4.Box(&mp4.EdtsBox{Elst: []*mp4.ElstBox{elst}, Children: []mp4.Box{elst}}))
	slices.Reverse(init.Moov.Children[1:]) // the track before what says that it is fragmented
	var out bytes.Buffer
	if err := init.Encode(&out); err != nil {
		return err
	}
	return writeFile(file, out.Bytes())
}

// sampleEntry describes the samples of a rendition to decoders.
func (s *renditionFiles) sampleEntry(r Rung) (mp4.Box, error) {
	if s.picture != nil {
		return s.videoEntry()
	}
	esds := mp4.CreateEsdsBox([]byte(aacConfig(s.channels)))
	esds.DecConfigDescriptor.MaxBitrate, esds.DecConfigDescriptor.AvgBitrate = uint32(r.AudioBitrate), uint32(r.AudioBitrate)
	return mp4.CreateAudioSampleEntryBox("mp4a", uint16(s.channels), 16, uint16(s.sampleRate), esds), nil
}

// checkRung compares the parameters of the encoder with the rung.
func (s *renditionFiles) checkRung(j renditionJob, info *Info, plan timing) error {
	r := j.rung
	if isAudio := s.picture == nil; isAudio || j.audio != nil {
		if !isAudio || j.audio == nil {
			return fmt.Errorf("it has sound instead of a picture, or a picture instead of sound, which is not AAC")
		}
		if s.channels != r.channels() {
			return fmt.Errorf("it has %d channels instead of %d", s.channels, r.channels())
		}
		return nil
	}
	if s.picture.codec != r.Codec {
		return fmt.Errorf("it is %s instead of %s", codecName(s.picture.codec), codecName(r.Codec))
	}
	if s.picture.hdr() != r.HDR {
		return fmt.Errorf("its dynamic range is not that of its rung")
	}
	if s.width != r.Width || s.height != r.Height {
		return fmt.Errorf("it is %dx%d pixels instead of %dx%d", s.width, s.height, r.Width, r.Height)
	}
	highest := levelNumber(h264LevelFor(r.Width, r.Height, maxDecodeRate(info.Video, plan), r.VideoBitrate))
	if r.Codec == h264Codec && s.picture.level > highest {
		return fmt.Errorf("its H.264 level is %d; the highest for its rung is %d", s.picture.level, highest)
	}
	return nil
}

// readInit reads an initialization segment, and checks that it says what every rendition must: one enabled track, of
// H.264, HEVC, AV1 or AAC as in the package documentation, shown as it is.
func (s *renditionFiles) readInit(file string) error {
	if err := checkTree(file, initBoxes); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	s.bytes += int64(len(text))
	return s.parseInit(text)
}

func (s *renditionFiles) parseInit(text []byte) error {
	parsed, err := decodeMP4(bytes.NewReader(text))
	if err != nil {
		return err
	}
	if parsed.Init == nil || parsed.Init.Moov == nil || parsed.Init.Moov.Mvex == nil || len(parsed.Init.Moov.Traks) != 1 {
		return fmt.Errorf("it does not have exactly one fragmented track")
	}
	trak := parsed.Init.Moov.Trak
	if trak.Tkhd == nil || trak.Mdia == nil || trak.Mdia.Mdhd == nil || trak.Mdia.Hdlr == nil || trak.Mdia.Minf == nil ||
		trak.Mdia.Minf.Stbl == nil || trak.Mdia.Minf.Stbl.Stsd == nil || len(trak.Mdia.Minf.Stbl.Stsd.Children) != 1 {
		return fmt.Errorf("it does not have exactly one sample entry")
	}
	const enabled = 1
	if trak.Tkhd.TrackID != trackID || trak.Tkhd.Flags&enabled == 0 {
		return fmt.Errorf("its track is disabled or has another number than %d", trackID)
	}
	s.trak, s.timescale = trak, int64(trak.Mdia.Mdhd.Timescale)
	if e := trak.Edts; e != nil && len(e.Elst) == 1 && len(e.Elst[0].Entries) == 1 {
		s.editStart = e.Elst[0].Entries[0].MediaTime
	}
	stsd, want := trak.Mdia.Minf.Stbl.Stsd, int64(videoTimescale)
	switch handler := trak.Mdia.Hdlr.HandlerType; {
	case handler == "vide" && cmp.Or(stsd.AvcX, stsd.HvcX, stsd.Av01) != nil:
		err = s.readVideoEntry(cmp.Or(stsd.AvcX, stsd.HvcX, stsd.Av01))
	case handler == "soun" && stsd.Mp4a != nil:
		want, err = sampleRate, s.readAudioEntry(stsd.Mp4a)
	default:
		return fmt.Errorf("it is neither H.264, HEVC, AV1 nor AAC")
	}
	if err == nil && s.timescale != want {
		err = fmt.Errorf("its clock has %d ticks a second instead of %d", s.timescale, want)
	}
	return err
}

func (s *renditionFiles) readAudioEntry(entry *mp4.AudioSampleEntryBox) error {
	const aacObject = 0x40
	if entry.Esds == nil || entry.Esds.DecConfigDescriptor == nil || entry.Esds.DecConfigDescriptor.DecSpecificInfo == nil ||
		entry.Esds.DecConfigDescriptor.ObjectType != aacObject {
		return fmt.Errorf("its codec is not AAC")
	}
	config := string(entry.Esds.DecConfigDescriptor.DecSpecificInfo.DecConfig)
	for channels := range layouts {
		// A decoder needs no more than the first two bytes. Some versions of ffmpeg count two channels in the entry of 5.1.
		want, counted := aacConfig(channels), int(entry.ChannelCount)
		if (config == want || config == want[:2]) && (counted == channels || counted == stereo) && int(entry.SampleRate) == sampleRate {
			s.codecs, s.channels, s.sampleRate = "mp4a.40.2", channels, sampleRate
			return nil
		}
	}
	return fmt.Errorf("it is not AAC-LC in stereo or 5.1 at %d Hz", sampleRate)
}

// checkPublishedInit checks that an initialization segment has one edit, and says nothing that the parser ignores, such
// as a rotation.
func checkPublishedInit(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	parsed, err := decodeMP4(bytes.NewReader(text))
	if err != nil {
		return err
	}
	edts := parsed.Init.Moov.Trak.Edts
	if edts == nil || len(edts.Elst) != 1 || len(edts.Elst[0].Entries) != 1 || edts.Elst[0].Entries[0].MediaRateInteger != 1 {
		return fmt.Errorf("it does not have exactly one edit")
	}
	var again bytes.Buffer
	if err := parsed.Init.Encode(&again); err != nil {
		return err
	}
	if !bytes.Equal(again.Bytes(), text) {
		return fmt.Errorf("it was not written by this program")
	}
	return nil
}
