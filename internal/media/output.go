package media

import (
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/media/captions"
)

// Rung is one quality of a ladder: video with a size, or audio without one.
type Rung struct {
	// Name is unique in a ladder, such as "720p" or "audio". It becomes the
	// name of a directory.
	Name string `json:"name"`
	// Width and Height are even; both are 0 in an audio rung.
	Width  int `json:"width,omitempty"`
	Height int `json:"height,omitempty"`
	// VideoBitrate is the rate in bits per second at which the encoder's buffer of two
	// seconds fills. A burst may empty the buffer in addition; most material stays far
	// below it.
	VideoBitrate int `json:"video_bitrate,omitempty"`
	// AudioBitrate is bits per second of an audio rung.
	AudioBitrate int `json:"audio_bitrate,omitempty"`
	// Channels is 6 in an audio rung of 5.1, and 0 in one of stereo. Only streams of so many channels have renditions of 5.1.
	Channels int `json:"channels,omitempty"`
	// Quality and Preset are the CRF and libx264's preset of a video rung. Zero values: those of the
	// Tools that encode it.
	Quality int    `json:"quality,omitempty"`
	Preset  string `json:"preset,omitempty"`
	// Codec is "hevc" or "av1"; empty for H.264.
	Codec string `json:"codec,omitempty"`
	// Copied means that the picture of the source is copied, and not encoded.
	Copied bool `json:"copied,omitempty"`
	// HDR is "pq" or "hlg" if the rung has the dynamic range of the source, in 10 bits; empty for SDR.
	HDR string `json:"hdr,omitempty"`
	// Loudness is the target of an audio rung in LUFS, below 0; 0: the source's own.
	Loudness float64 `json:"loudness,omitempty"`
}

// IsAudio reports whether the rung has no picture.
func (r Rung) IsAudio() bool { return r.Height == 0 }

// IsUndivided reports whether a divided transcode makes the rendition at once, and not in chunks.
func (r Rung) IsUndivided() bool { return r.IsAudio() || r.Copied }

// Progress is reported about once a second during a transcode.
type Progress struct {
	// Percent is 0 to 99. Only [Tools.Check] can complete the work.
	Percent float64 `json:"percent"`
	// Position is how many seconds of the source are done.
	Position float64 `json:"position"`
	// Speed is seconds of source per second, smoothed. It is 0 during the first
	// 2 s, and until 1 % is done or 30 s have passed.
	Speed float64 `json:"speed"`
	// ETA is the time left at that speed; 0 if unknown.
	ETA time.Duration `json:"eta"`
	// Frames is the number of frames decoded so far.
	Frames int64 `json:"frames"`
	// Encoder is that of the picture in H.264; empty if there is none. If a hardware encoder
	// has failed, FailedEncoder is its name, and Percent has begun at 0 again.
	Encoder       string `json:"encoder,omitempty"`
	FailedEncoder string `json:"failed_encoder,omitempty"`
}

// Output describes what [Tools.Transcode] wrote, as measured from the files.
// Times and durations are in seconds, bandwidths in bits per second.
type Output struct {
	// Video lists the renditions with a picture, the largest first. Audio lists
	// those without, the default one first. They are never muxed together.
	Video []Rendition `json:"video"`
	Audio []Rendition `json:"audio"`
	// Duration is that of the longest rendition.
	Duration float64 `json:"duration"`
	// Bytes is the size of all playlists, headers and segments.
	Bytes int64 `json:"bytes"`
	// Storyboard is in the directory StoryboardDir; nil if there is none.
	Storyboard *Storyboard `json:"storyboard,omitempty"`
	// Captions are the text tracks of the manifests. The caller adds them: Transcode makes none.
	Captions []Captions `json:"captions,omitempty"`
	// Chapters are added by the caller, too.
	Chapters []captions.Chapter `json:"chapters,omitempty"`

	// Decoded is the number of frames from the decoder; Distinct counts those
	// with a timestamp above all earlier ones; DecodedEnd is where the last one
	// ends. Expected is the number of frames in every video rendition, after
	// the frame rate was limited.
	Decoded    int64   `json:"decoded"`
	Distinct   int64   `json:"distinct"`
	DecodedEnd float64 `json:"decoded_end"`
	Expected   int64   `json:"expected"`
	// FrameTimes are when these frames are shown; empty if that is unknown.
	FrameTimes []FrameRun `json:"frame_times,omitempty"`
	// Constant means that frames were repeated, because the source has gaps too
	// long for segments.
	Constant bool `json:"constant,omitempty"`
	// DecodeErrors counts ffmpeg's error messages about the source. Damage is
	// what is missing as a result; nil if there were no errors.
	DecodeErrors int64   `json:"decode_errors,omitempty"`
	Damage       *Damage `json:"damage,omitempty"`
	// Encoder is ffmpeg's encoder of the video renditions in H.264; empty if there are none.
	// FailedEncoder is the hardware encoder that failed before; a warning says why.
	Encoder       string `json:"encoder,omitempty"`
	FailedEncoder string `json:"failed_encoder,omitempty"`
	// Warnings are sentences about oddities that do not prevent publishing.
	Warnings []string `json:"warnings"`
}

// Rendition is one media playlist with its initialization segment and segments.
type Rendition struct {
	// Name is the rung's; each language has a name of its own.
	Name string `json:"name"`
	// Playlist and Init are slash-separated paths relative to the output
	// directory. Segments are in the same directory.
	Playlist string `json:"playlist"`
	Init     string `json:"init"`
	// Codecs is the RFC 6381 string, such as "avc1.64001f" or "mp4a.40.2".
	Codecs string `json:"codecs"`

	Width     int     `json:"width,omitempty"`
	Height    int     `json:"height,omitempty"`
	FrameRate float64 `json:"frame_rate,omitempty"`
	// HDR is that of the rung.
	HDR string `json:"hdr,omitempty"`
	// Frames is the number of pictures, or of coded audio frames.
	Frames int64 `json:"frames"`
	// Duration is the presented time, without the encoder delay.
	Duration float64 `json:"duration"`
	Segments int     `json:"segments"`
	// Bytes is the size of playlist, initialization segment and segments.
	Bytes int64 `json:"bytes"`
	// PeakBandwidth is the highest over any run of segments that lasts between
	// half and one and a half target durations, as RFC 8216 defines it.
	PeakBandwidth    int64 `json:"peak_bandwidth"`
	AverageBandwidth int64 `json:"average_bandwidth"`

	// Group is the name of an audio rendition's rung. All languages share it.
	Group string `json:"group,omitempty"`
	// Source is the index of the source's stream.
	Source     int    `json:"source"`
	Channels   int    `json:"channels,omitempty"`
	SampleRate int    `json:"sample_rate,omitempty"`
	Language   string `json:"language,omitempty"`
	Title      string `json:"title,omitempty"`
	// Role is that of the source's stream, see [Audio].
	Role    string `json:"role,omitempty"`
	Default bool   `json:"default,omitempty"`
}

// Storyboard describes sheets of small pictures and the WebVTT file that maps
// times to parts of the sheets.
type Storyboard struct {
	// VTT and Sheets are names of files in the storyboard's directory.
	VTT    string   `json:"vtt"`
	Sheets []string `json:"sheets"`
	// Interval is the seconds between two pictures, Count their number.
	Interval float64 `json:"interval"`
	Count    int     `json:"count"`
	// Width and Height are those of one picture.
	Width  int `json:"width"`
	Height int `json:"height"`
	// Columns and Rows are those of a full sheet.
	Columns int `json:"columns"`
	Rows    int `json:"rows"`
}

// Damage is what the renditions lack because the source could not be read or
// decoded.
type Damage struct {
	// Seconds is about how long the picture is missing; the frame before it
	// stays on the screen. Frames is about how many frames that is.
	Seconds float64 `json:"seconds"`
	Frames  int64   `json:"frames"`
	// Errors counts the messages of demuxers and decoders, also about audio.
	Errors int64 `json:"errors"`
}

// AddRenditions adds those renditions of another output of the same source that o does not have, with the
// warnings, and returns them. Their files must be put next to those of o; [Tools.Check] verifies that they fit.
func (o *Output) AddRenditions(other *Output) (added []Rendition) {
	missing := func(have, from []Rendition) []Rendition {
		return slices.DeleteFunc(slices.Clone(from), func(r Rendition) bool {
			return slices.ContainsFunc(have, func(h Rendition) bool { return h.Name == r.Name })
		})
	}
	video, audio := missing(o.Video, other.Video), missing(o.Audio, other.Audio)
	o.Video, o.Audio = append(o.Video, video...), append(o.Audio, audio...)
	slices.SortStableFunc(o.Video, func(a, b Rendition) int { return b.Height - a.Height })
	for _, text := range other.Warnings {
		if !slices.Contains(o.Warnings, text) {
			o.Warnings = appendWarning(o.Warnings, text)
		}
	}
	o.Duration, o.Bytes = 0, 0
	o.summarize()
	return slices.Concat(video, audio)
}

func (o *Output) warn(format string, args ...any) {
	o.Warnings = appendWarning(o.Warnings, fmt.Sprintf(format, args...))
}
