package media

import (
	"cmp"
	"slices"
)

const (
	stereo   = 2 // channels of the usual audio renditions
	surround = 6 // channels of those in 5.1

	surroundBitrate = 384_000
)

// layouts are ffmpeg's names of the channels of renditions.
var layouts = map[int]string{stereo: "stereo", surround: "5.1"}

// surroundRungs returns the rung in 5.1, if it is asked for and an audio stream has so many channels.
func (o LadderOptions) surroundRungs(info *Info) []Rung {
	if !o.Surround || !slices.ContainsFunc(info.Audio, func(a Audio) bool { return a.isSurround() }) {
		return nil
	}
	return []Rung{{Name: "audio-surround", AudioBitrate: surroundBitrate, Channels: surround}}
}

// channels is how many channels an audio rung has.
func (r Rung) channels() int { return cmp.Or(r.Channels, stereo) }

// isSurround reports whether a sound has a rendition in 5.1: it has 5.1 or more channels, which ffmpeg can mix.
func (a *Audio) isSurround() bool { return a.Channels >= surround && nameChannels(a) == "" }

// decodedSound is a sound of a source with the channels of a rendition.
type decodedSound struct {
	audio    *Audio
	channels int
}

func (j renditionJob) sound() decodedSound { return decodedSound{j.audio, j.rung.channels()} }

// soundsOf lists the sounds of renditions.
func soundsOf(jobs []renditionJob) []decodedSound {
	var list []decodedSound
	for _, j := range jobs {
		if !slices.Contains(list, j.sound()) {
			list = append(list, j.sound())
		}
	}
	return list
}
