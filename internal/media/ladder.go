package media

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ladderStep is one rung of the full ladder, for 16:9 and up to 30 frames a second.
type ladderStep struct {
	short   int // pixels of the short side
	bitrate int // limit in bits per second
}

var ladderSteps = [...]ladderStep{
	{2160, 16_000_000}, {1440, 9_000_000}, {1080, 5_000_000}, {720, 2_800_000},
	{480, 1_400_000}, {360, 800_000}, {240, 400_000},
}

const (
	audioBitrate    = 128_000
	lowAudioBitrate = 64_000
	// rungTolerance is the share of a rung's size from which a source gets that
	// rung: 1918x1078 is a 1080p source and keeps its size.
	rungTolerance = 0.95
	// maxFrameRate is the highest frame rate that is published.
	maxFrameRate = 60.0
)

// Ladder chooses the rungs for a source, the largest first: every standard size
// whose short side fits into the short side of the displayed picture. A picture
// smaller than 95 % of the smallest size gets one rung at its own size. A source
// with audio also gets the rung "audio"; audio alone gets "audio" and
// "audio-low".
func Ladder(info *Info) []Rung {
	var rungs []Rung
	if info.Video != nil {
		rungs = videoRungs(info.Video)
	}
	if len(info.Audio) > 0 {
		rungs = append(rungs, Rung{Name: "audio", AudioBitrate: audioBitrate})
		if info.Video == nil {
			rungs = append(rungs, Rung{Name: "audio-low", AudioBitrate: lowAudioBitrate})
		}
	}
	return rungs
}

// LadderOptions are what is asked for one video. Zero values mean the usual ladder.
type LadderOptions struct {
	// Heights are the wanted sizes, of [LadderHeights]. Default: all.
	Heights []int
	// LeftOut are sizes to leave out, of the others.
	LeftOut []int
	// Quality, Preset and Loudness are those of the rungs, see [Rung].
	Quality  int
	Preset   string
	Loudness float64
	// AudioBitrate is bits per second. Default 128,000.
	AudioBitrate int
	// Codecs are those of further renditions next to the ones of H.264, for sizes from 720p on: hevc, av1.
	Codecs []string
	// HDR keeps the dynamic range of an HDR source in these further renditions.
	HDR bool
	// Surround asks for a rendition in 5.1 of each audio stream that has so many channels, next to that in stereo.
	Surround bool
}

// LadderCodecs are the codecs of further renditions.
func LadderCodecs() []string { return []string{hevcCodec, av1Codec} }

// LadderHeights are the short sides of the standard sizes, the largest first.
func LadderHeights() []int {
	var heights []int
	for _, s := range ladderSteps {
		heights = append(heights, s.short)
	}
	return heights
}

// LadderWith is [Ladder] with what the options ask for. If no wanted size fits, it has the largest one that
// fits and is not above the wanted ones. It has "audio-low" only if that is lower than "audio". H.264 ends at 1080p if larger sizes
// are not asked for: few devices decode it beyond.
func LadderWith(info *Info, o LadderOptions) []Rung {
	var rungs []Rung
	hdr := ""
	if o.HDR && info.Video != nil {
		hdr = info.Video.HDR
	}
	all := slices.DeleteFunc(Ladder(info), func(r Rung) bool { return !r.IsAudio() && slices.Contains(o.LeftOut, r.NominalHeight()) })
	for _, r := range append(o.withCodecs(o.choose(all), hdr), o.surroundRungs(info)...) {
		if r.IsAudio() {
			r.Loudness = o.Loudness
		} else {
			r.Quality, r.Preset, r.Copied = o.Quality, o.Preset, info.Video.isCopy(r.Width, r.Height, r.Codec)
		}
		if r.Name == "audio" && o.AudioBitrate > 0 {
			r.AudioBitrate = o.AudioBitrate
		}
		if r.Name != "audio-low" || r.AudioBitrate < cmp.Or(o.AudioBitrate, audioBitrate) {
			rungs = append(rungs, r)
		}
	}
	return rungs
}

const (
	largestH264 = 1080 // short side, unless asked for
	// minFurtherSize is the smallest size in further codecs: in smaller ones they save little.
	minFurtherSize = 720
	// furtherBitrate is the limit of their bitrates, as a share of that of H.264.
	furtherBitrate = 0.7
)

// withCodecs adds the rungs of further codecs, with a dynamic range, and leaves out those of H.264 that are too large.
func (o LadderOptions) withCodecs(all []Rung, hdr string) []Rung {
	var rungs []Rung
	for i, r := range all {
		isLast := i+1 == len(all) || all[i+1].IsAudio()
		if r.IsAudio() || r.NominalHeight() <= largestH264 || isLast || slices.Contains(o.Heights, r.NominalHeight()) {
			rungs = append(rungs, r)
		}
		for _, codec := range o.Codecs {
			if r.NominalHeight() >= minFurtherSize {
				second := r
				second.Name, second.Codec, second.HDR = r.Name+"-"+codec, codec, hdr
				second.VideoBitrate = int(math.Round(furtherBitrate*float64(r.VideoBitrate)/1000)) * 1000
				rungs = append(rungs, second)
			}
		}
	}
	return rungs
}

// choose leaves out video rungs that are not wanted, but not all.
func (o LadderOptions) choose(all []Rung) []Rung {
	isWanted := func(r Rung) bool { return slices.Contains(o.Heights, r.NominalHeight()) }
	if len(o.Heights) == 0 || len(all) == 0 || all[0].IsAudio() {
		return all
	}
	keep := all[0].Name
	for _, r := range slices.Backward(all) {
		if !r.IsAudio() && r.NominalHeight() <= slices.Max(o.Heights) {
			keep = r.Name // the largest in the end
		}
	}
	isAnyWanted := slices.ContainsFunc(all, isWanted)
	return slices.DeleteFunc(all, func(r Rung) bool {
		return !r.IsAudio() && !isWanted(r) && (isAnyWanted || r.Name != keep)
	})
}

// NominalHeight is the height in the name of a video rung, of [LadderHeights] for most sources. It is that of the short side, which
// may be a little smaller.
func (r Rung) NominalHeight() int {
	number, _, _ := strings.Cut(r.Name, "p")
	n, _ := strconv.Atoi(number)
	return n
}

func videoRungs(v *Video) []Rung {
	var rungs []Rung
	short := min(v.Width, v.Height)
	for _, s := range ladderSteps {
		if float64(short) < rungTolerance*float64(s.short) {
			continue
		}
		scale := min(1, float64(s.short)/float64(short))
		w := min(nearestEven(float64(v.Width)*scale), even(float64(v.Width)))
		h := min(nearestEven(float64(v.Height)*scale), even(float64(v.Height)))
		if !isEncodable(w, h) {
			continue
		}
		rungs = append(rungs, videoRung(s.short, w, h, v))
	}
	if len(rungs) > 0 {
		return rungs
	}
	w, h, _ := fitH264(v.Width, v.Height)
	return []Rung{videoRung(min(w, h), w, h, v)}
}

func videoRung(short, w, h int, v *Video) Rung {
	return Rung{Name: fmt.Sprintf("%dp", short), Width: w, Height: h, VideoBitrate: maxBitrate(w, h, v.outputRate())}
}

// maxBitrate interpolates between the steps by the number of pixels, so that
// portrait, cinema and odd sizes get what their area needs. High frame rates get
// half as much again.
func maxBitrate(w, h int, fps float64) int {
	area := float64(w * h)
	pixels := func(s ladderStep) float64 { return float64(s.short) * float64(s.short) * 16 / 9 }
	last := ladderSteps[len(ladderSteps)-1]
	rate := float64(last.bitrate) * area / pixels(last)
	for i := 0; i+1 < len(ladderSteps); i++ {
		hi, lo := ladderSteps[i], ladderSteps[i+1]
		if area >= pixels(lo) {
			part := (area - pixels(lo)) / (pixels(hi) - pixels(lo))
			rate = float64(lo.bitrate) + part*float64(hi.bitrate-lo.bitrate)
			break
		}
	}
	if fps > 33 {
		rate *= 1.5
	}
	return int(math.Round(max(rate, 100_000)/1000)) * 1000
}

// even is the nearest even number not above v, and at least 2: 4:2:0 requires even
// sizes.
func even(v float64) int {
	return max(2, int(math.Floor(v/2+1e-6))*2)
}

func nearestEven(v float64) int { return max(2, int(math.Round(v/2))*2) }

// fitH264 scales a size down until H.264 can encode it. ok is false if a side
// would vanish.
func fitH264(w, h int) (ew, eh int, ok bool) {
	scale := min(1, float64(maxEncodedSide)/float64(max(w, h)))
	scale = min(scale, math.Sqrt(float64(maxEncodedPixels)/(float64(w)*float64(h))))
	fw, fh := float64(w)*scale, float64(h)*scale
	if scale < 1 && (fw < 2 || fh < 2) {
		return 0, 0, false
	}
	return even(fw), even(fh), true
}
