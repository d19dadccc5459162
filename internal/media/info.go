package media

import (
	"fmt"
	"math"

	"github.com/cuelight/cuelight/internal/media/captions"
)

// InfoVersion rises when Probe measures more, or measures differently. An Info
// of another version should be probed again.
const InfoVersion = 3

// Info describes a source as [Tools.Probe] measured it. Times and durations are
// in seconds. Packets decide wherever a header disagrees with them.
type Info struct {
	// Version is the InfoVersion of the program that probed.
	Version int `json:"version"`
	// Container is ffmpeg's name for the format, such as "mov,mp4,m4a,3gp,3g2,mj2".
	Container string `json:"container"`
	// Codecs lists ffmpeg's names of the decodable codecs of all streams, used
	// or not.
	Codecs []string `json:"codecs,omitempty"`
	// Size is the file's length in bytes.
	Size int64 `json:"size"`
	// Start is the timestamp that becomes 0 in the output: that of the first
	// frame, or of the first audio if that is more than 0.1 s earlier.
	Start float64 `json:"start"`
	// FormatStart is the smallest timestamp of all streams, which ffmpeg takes
	// for zero. Of a part, it is always what ffmpeg takes for zero.
	FormatStart float64 `json:"format_start"`
	// Duration is measured from the packets of the used streams.
	Duration float64 `json:"duration"`
	// HeaderDuration is what the header claims; 0 if it claims nothing.
	HeaderDuration float64 `json:"header_duration"`

	// Video is the stream to transcode; nil if there is none.
	Video *Video `json:"video,omitempty"`
	// Audio lists the usable audio streams, the default one first.
	Audio []Audio `json:"audio"`
	// Subtitles lists the text subtitles, and captions inside the pictures.
	Subtitles []Subtitle `json:"subtitles"`
	// Chapters have the times of the output.
	Chapters []captions.Chapter `json:"chapters,omitempty"`
	// Range is the part that [Tools.Trim] has kept, which everything else here describes; nil for the whole source.
	Range *Range `json:"range,omitempty"`
	// Joins, if set, say how to read a source whose clock jumps.
	Joins *Joins `json:"joins,omitempty"`
	// Cover is the stream index of an embedded cover picture, or -1.
	Cover int `json:"cover"`

	// Warnings are sentences about oddities that do not prevent publishing.
	Warnings []string `json:"warnings"`
}

// Video describes the chosen video stream.
type Video struct {
	// Index is the stream's number in the file.
	Index int `json:"index"`
	// Codec is ffmpeg's name, such as "h264".
	Codec   string `json:"codec"`
	Profile string `json:"profile,omitempty"`
	// CodedWidth and CodedHeight are the stored pixels of a frame.
	CodedWidth  int `json:"coded_width"`
	CodedHeight int `json:"coded_height"`
	// Width and Height are the display size in square pixels, after rotation.
	Width  int `json:"width"`
	Height int `json:"height"`
	// SAR is the sample aspect ratio: a stored pixel's width by its height.
	SAR float64 `json:"sar"`
	// Rotation is the clockwise rotation to apply: 0, 90, 180 or 270. If
	// Mirrored, the picture is then flipped left to right.
	Rotation int  `json:"rotation"`
	Mirrored bool `json:"mirrored,omitempty"`
	// FPS is the measured average frame rate.
	FPS float64 `json:"fps"`
	// AssumedRate is the frame rate, as a fraction, at which frames without timestamps are shown; empty if they have
	// them.
	AssumedRate string `json:"assumed_rate,omitempty"`
	// MinGap is the shortest time between two frames; 0 if unknown.
	MinGap float64 `json:"min_gap,omitempty"`
	// Frames is the number of packets to show. A decoder may return fewer
	// frames (VP8's hidden ones, damage).
	Frames int64 `json:"frames"`
	// Repeated is how many of them have the timestamp of another one.
	Repeated int64 `json:"repeated,omitempty"`
	// Keyframes is how many of them are keyframes.
	Keyframes int64 `json:"keyframes"`
	// MaxGap is the longest time that one frame stays on the screen.
	MaxGap float64 `json:"max_gap"`
	// Start and Duration are measured from the packets.
	Start    float64 `json:"start"`
	Duration float64 `json:"duration"`
	// Skipped is the time that Duration leaves out because the timestamps
	// jump forward: a part is missing, or the clock changed.
	Skipped float64 `json:"skipped,omitempty"`
	// Undecodable is the time from Start to the first decodable frame, if the
	// recording begins between two keyframes.
	Undecodable float64 `json:"undecodable,omitempty"`

	// FrameTimes are when the frames of the output are shown, as computed from the packets; empty if that is not
	// certain.
	FrameTimes []FrameRun `json:"frame_times,omitempty"`

	// Interlaced is measured from decoded frames. TopFirst is then the field
	// order.
	Interlaced bool `json:"interlaced"`
	TopFirst   bool `json:"top_first,omitempty"`
	// Telecined means that it is a film whose fields were repeated for 59.94 of them a second, in frames that do not say so. Then
	// Interlaced is true, too.
	Telecined bool `json:"telecined,omitempty"`
	// taggedProgressive means that the header says "progressive".
	taggedProgressive bool
	// HDR is "pq", "hlg" or empty.
	HDR string `json:"hdr,omitempty"`
	// StaticHDR is set if HDR is "pq" and the source has it.
	StaticHDR   *StaticHDR `json:"static_hdr,omitempty"`
	PixelFormat string     `json:"pixel_format"`
	FullRange   bool       `json:"full_range,omitempty"`
	// Matrix, Primaries and Transfer are ffmpeg's names; empty if the file
	// does not say.
	Matrix    string `json:"matrix,omitempty"`
	Primaries string `json:"primaries,omitempty"`
	Transfer  string `json:"transfer,omitempty"`
	// Alpha means that the frames have transparency.
	Alpha bool `json:"alpha,omitempty"`

	// Copy is set if the picture is copied for one rendition; see [Tools.PlanCopy].
	Copy *PictureCopy `json:"copy,omitempty"`
}

// Audio describes one usable audio stream.
type Audio struct {
	Index int `json:"index"`
	// Tracks are the streams whose channels make this sound, if these are separate mono tracks; Index is then the
	// first of them.
	Tracks   []int  `json:"tracks,omitempty"`
	Codec    string `json:"codec"`
	Channels int    `json:"channels"`
	// Layout is ffmpeg's name for the channel layout; it may be empty.
	Layout string `json:"layout,omitempty"`
	// Rate is samples per second.
	Rate int `json:"rate"`
	// Language is the file's tag, such as "eng"; empty if unknown.
	Language string `json:"language,omitempty"`
	Title    string `json:"title,omitempty"`
	// Role is commentary, description (of the picture), enhanced-audio-intelligibility or dub, as DASH calls them; empty for the main
	// sound.
	Role    string `json:"role,omitempty"`
	Default bool   `json:"default,omitempty"`
	// Start and Duration are measured from the packets.
	Start    float64 `json:"start"`
	Duration float64 `json:"duration"`
	// Loudness is what [Tools.MeasureLoudness] found, in stereo and in 5.1; nil if that was not called, or the stream is silent.
	Loudness         *Loudness `json:"loudness,omitempty"`
	SurroundLoudness *Loudness `json:"surround_loudness,omitempty"`
}

// Subtitle describes one text subtitle stream.
type Subtitle struct {
	Index int `json:"index"`
	// Codec is ffmpeg's name, or "a53" for captions inside the pictures, whose Index is that of the video.
	Codec    string `json:"codec"`
	Language string `json:"language,omitempty"`
	Title    string `json:"title,omitempty"`
	Forced   bool   `json:"forced,omitempty"`
	// SDH means that it also describes sounds, for viewers who do not hear them.
	SDH bool `json:"sdh,omitempty"`
}

// outputRate is the frame rate after deinterlacing.
func (v *Video) outputRate() float64 {
	if v.Telecined {
		return filmRate
	}
	return float64(v.framesPerDecoded()) * v.FPS
}

// outputFrames is how many frames are made of so many decoded ones.
func (v *Video) outputFrames(decoded int64) int64 {
	if v.Telecined {
		return decoded - decoded/5
	}
	return decoded * v.framesPerDecoded()
}

// framesPerDecoded is how many frames are made of a decoded one: two of an
// interlaced one, if the result does not exceed the highest frame rate.
func (v *Video) framesPerDecoded() int64 {
	if v.Interlaced && !v.Telecined && 2*v.FPS <= maxFrameRate*1.001 {
		return 2
	}
	return 1
}

// decodableFrames is how many frames a sound decoder should return.
func (v *Video) decodableFrames() int64 {
	return v.Frames - int64(math.Round(v.Undecodable*v.FPS))
}

// decodedSeconds is how much of the source is decoded.
func (i *Info) decodedSeconds() float64 {
	if i.Range == nil {
		return i.Duration
	}
	return i.Duration + planTiming(i).begin()
}

// frameTime is the average duration of a frame.
func frameTime(v *Video) float64 {
	if v.FPS <= 0 {
		return 0
	}
	return 1 / v.FPS
}

func (i *Info) warn(format string, args ...any) {
	i.Warnings = appendWarning(i.Warnings, fmt.Sprintf(format, args...))
}
