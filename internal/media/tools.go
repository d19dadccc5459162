package media

import (
	"errors"
	"time"
)

// Tools names the two programs this package runs and how it runs them. The
// zero value works: both programs come from PATH and every option has its
// default. A Tools is a plain value; copies are independent, and all methods
// may be called at once.
type Tools struct {
	// FFmpeg and FFprobe are paths or names of the programs. Empty means
	// "ffmpeg" and "ffprobe" from PATH.
	FFmpeg, FFprobe string

	// Preset is libx264's trade of time for size, from "ultrafast" to
	// "veryslow". Empty means "veryfast".
	Preset string
	// CRF is the constant quality aimed at below each rung's highest bitrate,
	// 1 (best) to 51. Zero means 23.
	CRF int
	// Threads limits each decoder, filter graph and encoder of ffmpeg. Zero
	// leaves the choice to ffmpeg, which takes all cores.
	Threads int
	// Nice lowers the priority of the children, 1 to 19, on Linux that of their
	// sessions, too. Zero means the priority of this process.
	Nice int
	// Stall is how long a child may do nothing before it is killed and the call
	// ends with [ErrStalled]: it makes no step forward, and on Linux neither
	// uses a processor nor reads or writes. Zero means two minutes: disks that
	// spin up and servers of files that start anew take less. Negative means
	// for ever. A child that works without a step forward, as a decoder that goes round
	// in a circle does, ends after five times as much processor time. Of what
	// waits for a processor that others have, see [ErrStarved].
	Stall time.Duration
	// Memory is how many bytes of memory a child and its own children may have
	// resident before they are killed and the call ends with [ErrMemory]. It is
	// looked at four times a second, and on Linux only. Zero means half of what
	// this host or this process's control group has, but not less than 1 GiB;
	// negative, that only the kernel sets a bound.
	Memory int64
	// Sandbox says how far the children are confined. On systems other than Linux
	// there is no confinement.
	Sandbox Sandbox
	// User is the number of the user and the group that the children run as where
	// this process is root and may change that. Zero means [DefaultUser].
	User int
	// Readable are files and directories, beside those of the system, that
	// confined children may read and execute programs in.
	Readable []string
	// MaxDuration is the longest source that is taken, a week at the most. Zero
	// means [DefaultMaxDuration].
	MaxDuration time.Duration
	// TimeFactor is how many seconds a call may take for each second of its source,
	// beside half an hour; then it ends with [ErrTooLong]. Zero means
	// [DefaultTimeFactor]; negative, that nothing bounds what goes forward.
	TimeFactor float64
	// Known, if set, spares asking the programs again what they can do.
	Cache *CapabilityCache
	// Step, if set, is called for the steps forward that a call of a method
	// makes, about once a second at the most while a child runs, with a number
	// that rises each time. It is for a watchdog of the caller's: what is slow
	// makes steps, what stands still makes none. It is called from one
	// goroutine at a time, and no more once the method has returned.
	Step func(n int64)

	steps         *int64        // of the call that is being made
	probeDecoders decoderSet    // while a source is probed
	minTimeLimit  time.Duration // instead of leastTime, for tests
}

// DefaultMaxDuration is half a day: more than events and recordings last, and as
// much as the large video sites take.
const DefaultMaxDuration = 12 * time.Hour

// Errors to be matched with [errors.Is]. All but ErrNoPicture say something
// about this host or this attempt, not about the source: another attempt, or
// another host, may well succeed.
var (
	// ErrToolMissing: ffmpeg or ffprobe is not installed here, or lacks an
	// encoder that cannot be done without.
	ErrToolMissing = errors.New("tool missing")
	// ErrSandbox: a child could not be confined as Tools.Sandbox asks, or its
	// program could not be started.
	ErrSandbox = errors.New("cannot be run confined")
	// ErrStalled: a child made no progress for Tools.Stall and was killed.
	ErrStalled = errors.New("no progress")
	// ErrStarved: a child was ready to work for ten times Tools.Stall, made no
	// progress and got less than a hundredth of a processor. It was killed, so
	// that another host, or a better hour, can do the work.
	ErrStarved = errors.New("no processor time")
	// ErrTooLong: it went on for longer than Tools.TimeFactor allows.
	ErrTooLong = errors.New("it takes too long")
	// ErrMemory: a child took more than Tools.Memory and was killed, or memory
	// ran out on this host.
	ErrMemory = errors.New("too little memory")
	// ErrNoSpace: the disk filled up, or a quota did.
	ErrNoSpace = errors.New("no space left")
	// ErrClosedSource: the program would have to be root to read this source.
	ErrSourceNotReadable = errors.New("other users may not read the source")
	// ErrMismatch: what was written is not a whole and sound copy of the
	// source. It must not be published.
	ErrMismatch = errors.New("output does not match the source")
	// ErrNoPicture: the source has no picture to make a poster or a
	// storyboard of.
	ErrNoPicture = errors.New("no picture")
)

// Refused says that a source can never be published as it is, on any host and
// in any attempt. Match it with [errors.As].
type RejectedError struct {
	// Reason is a sentence for the person who sent the source, without the
	// full stop: "the video is encrypted".
	Reason string
	// Detail is what ffprobe or ffmpeg said last, for whoever looks deeper.
	// It may be empty or have several lines.
	Detail string
}

// Error is the reason alone.
func (e *RejectedError) Error() string { return e.Reason }

// InfoVersion rises when Probe finds out more, or something else. An Info of
// another version should be made anew.
const InfoVersion = 1

// Info is what [Tools.Probe] found out about a source. Times and durations are
// seconds. Nothing in it is taken on trust from a header where the packets say
// otherwise.
type Info struct {
	// Version is InfoVersion of the program that found it out.
	Version int `json:"version"`
	// Container is ffmpeg's name for the format, such as "mov,mp4,m4a,3gp,3g2,mj2".
	Container string `json:"container"`
	// Codecs are ffmpeg's names of the codecs of all streams, whether used or not,
	// as far as they can be decoded.
	Codecs []string `json:"codecs,omitempty"`
	// Size is the file's length in bytes.
	Size int64 `json:"size"`
	// Start is the timestamp that becomes 0 in outputs: that of the first
	// frame, or of the first sound if that is more than 0.1 s earlier.
	Start float64 `json:"start"`
	// FormatStart is the smallest timestamp of all streams: the one ffmpeg
	// takes for zero.
	FormatStart float64 `json:"format_start"`
	// Duration is measured from the packets of the streams used.
	Duration float64 `json:"duration"`
	// HeaderDuration is what the file claims; 0 when it claims nothing.
	HeaderDuration float64 `json:"header_duration"`

	// Video is the stream to be transcoded; nil when there is none.
	Video *Video `json:"video,omitempty"`
	// Audio has the usable audio streams, the default one first.
	Audio []Audio `json:"audio"`
	// Subtitles has the text subtitles.
	Subtitles []Subtitle `json:"subtitles"`
	// Cover is the stream index of an embedded cover picture, or -1.
	Cover int `json:"cover"`

	// Warnings are sentences about what is odd but does not stop anything.
	Warnings []string `json:"warnings"`
}

// Video describes the chosen video stream.
type Video struct {
	// Index is the stream's number in the file.
	Index int `json:"index"`
	// Codec is ffmpeg's name, such as "h264".
	Codec   string `json:"codec"`
	Profile string `json:"profile,omitempty"`
	// CodedWidth and CodedHeight are the pixels stored in each frame.
	CodedWidth  int `json:"coded_width"`
	CodedHeight int `json:"coded_height"`
	// Width and Height are those of the picture as it is shown, in square
	// pixels, after rotation.
	Width  int `json:"width"`
	Height int `json:"height"`
	// SAR is the width of a stored pixel divided by its height.
	SAR float64 `json:"sar"`
	// Rotation is how far the picture is to be turned clockwise: 0, 90, 180
	// or 270. Mirrored says that it is flipped left to right after that.
	Rotation int  `json:"rotation"`
	Mirrored bool `json:"mirrored,omitempty"`
	// FPS is the average number of frames in a second, as measured.
	FPS float64 `json:"fps"`
	// MinGap is the shortest time from one frame to the next; 0 when unknown.
	MinGap float64 `json:"min_gap,omitempty"`
	// Frames is the number of packets that are meant to be shown. A decoder
	// may give somewhat fewer frames (VP8's hidden ones, damage).
	Frames int64 `json:"frames"`
	// Keyframes is how many of them are keyframes.
	Keyframes int64 `json:"keyframes"`
	// MaxGap is the longest time that one frame stays on screen.
	MaxGap float64 `json:"max_gap"`
	// Start and Duration are measured from the packets.
	Start    float64 `json:"start"`
	Duration float64 `json:"duration"`
	// Skipped is how long a time is left out of Duration because the clock
	// jumped ahead: a part is missing, or it is another clock.
	Skipped float64 `json:"skipped,omitempty"`
	// Undecodable is how many seconds after Start the first frame lies that can
	// be decoded: where a recording begins between two keyframes.
	Undecodable float64 `json:"undecodable,omitempty"`

	// Interlaced is decided by looking at decoded frames; TopFirst is the
	// field order then.
	Interlaced bool `json:"interlaced"`
	TopFirst   bool `json:"top_first,omitempty"`
	// saidProgressive: the header says that it is not interlaced.
	taggedProgressive bool
	// HDR is "pq", "hlg" or empty.
	HDR         string `json:"hdr,omitempty"`
	PixelFormat string `json:"pixel_format"`
	FullRange   bool   `json:"full_range,omitempty"`
	// Matrix, Primaries and Transfer are ffmpeg's names; empty when the file
	// does not say.
	Matrix    string `json:"matrix,omitempty"`
	Primaries string `json:"primaries,omitempty"`
	Transfer  string `json:"transfer,omitempty"`
	// Alpha says that the frames have transparency.
	Alpha bool `json:"alpha,omitempty"`
}

// Audio describes one usable audio stream.
type Audio struct {
	Index    int    `json:"index"`
	Codec    string `json:"codec"`
	Channels int    `json:"channels"`
	// Layout is ffmpeg's name for the channel layout; it may be empty.
	Layout string `json:"layout,omitempty"`
	// Rate is samples per second.
	Rate int `json:"rate"`
	// Language is the file's tag, such as "eng"; empty when unknown.
	Language string `json:"language,omitempty"`
	Title    string `json:"title,omitempty"`
	Default  bool   `json:"default,omitempty"`
	// Start and Duration are measured from the packets.
	Start    float64 `json:"start"`
	Duration float64 `json:"duration"`
}

// Subtitle describes one text subtitle stream.
type Subtitle struct {
	Index    int    `json:"index"`
	Codec    string `json:"codec"`
	Language string `json:"language,omitempty"`
	Title    string `json:"title,omitempty"`
	Forced   bool   `json:"forced,omitempty"`
}

// Rung is one quality to be produced: a video rung with a size, or an audio
// rung without one.
type Rung struct {
	// Name is unique in a ladder, such as "720p" or "audio". It becomes the
	// name of a folder.
	Name string `json:"name"`
	// Width and Height are even; both are 0 in an audio rung.
	Width  int `json:"width,omitempty"`
	Height int `json:"height,omitempty"`
	// VideoBitrate is the highest bitrate in bits per second, kept over any
	// two seconds; most material stays far below it.
	VideoBitrate int `json:"video_bitrate,omitempty"`
	// AudioBitrate is bits per second of an audio rung.
	AudioBitrate int `json:"audio_bitrate,omitempty"`
}

// IsAudio reports whether the rung has no picture.
func (r Rung) IsAudio() bool { return r.Height == 0 }

// Progress is told about once a second while a source is transcoded.
type Progress struct {
	// Percent is 0 to 99. Only [Tools.Check] can say 100.
	Percent float64 `json:"percent"`
	// Position is how much of the source is done, in seconds.
	Position float64 `json:"position"`
	// Speed is seconds of source done in a second, smoothed; 0 until it says
	// something: for the first 2 s, and until 1 % is done or 30 s have passed.
	Speed float64 `json:"speed"`
	// ETA is the time left as far as that speed tells; 0 when unknown.
	ETA time.Duration `json:"eta"`
	// Frames is the number of frames decoded so far.
	Frames int64 `json:"frames"`
}

// Output is what [Tools.Transcode] produced, as measured from the files it
// wrote. Times and durations are seconds, bandwidths bits per second.
type Output struct {
	// Video is the renditions with a picture, the largest first; Audio those
	// without, the default one first. They are never muxed together.
	Video []Rendition `json:"video"`
	Audio []Rendition `json:"audio"`
	// Duration is that of the longest rendition.
	Duration float64 `json:"duration"`
	// Bytes is the size of all playlists, headers and segments.
	Bytes int64 `json:"bytes"`
	// Storyboard is in the folder StoryboardFolder; nil if there is none.
	Storyboard *Storyboard `json:"storyboard,omitempty"`

	// Decoded is the number of frames the decoder gave, Distinct how many of
	// them came after all before them, DecodedEnd the time at which the last of
	// them ends, and Expected the number every video rendition must have after
	// the frame rate was made fit.
	Decoded    int64   `json:"decoded"`
	Distinct   int64   `json:"distinct"`
	DecodedEnd float64 `json:"decoded_end"`
	Expected   int64   `json:"expected"`
	// Constant says that frames were repeated, because the source leaves gaps
	// too long for segments.
	Constant bool `json:"constant,omitempty"`
	// DecodeErrors is how often ffmpeg complained about the source, and Damage
	// what that cost; nil if it did not complain.
	DecodeErrors int64   `json:"decode_errors,omitempty"`
	Damage       *Damage `json:"damage,omitempty"`
	// Warnings are sentences about what is odd but does not stop anything.
	Warnings []string `json:"warnings"`
}

// Rendition is one playlist with its header and segments.
type Rendition struct {
	// Name is the rung's; of several languages, each has its own.
	Name string `json:"name"`
	// Playlist and Init are paths relative to the output folder, with
	// slashes. Segments lie beside them.
	Playlist string `json:"playlist"`
	Init     string `json:"init"`
	// Codecs is the RFC 6381 string, such as "avc1.64001f" or "mp4a.40.2".
	Codecs string `json:"codecs"`

	Width     int     `json:"width,omitempty"`
	Height    int     `json:"height,omitempty"`
	FrameRate float64 `json:"frame_rate,omitempty"`
	// Frames is the number of pictures, or of coded audio frames.
	Frames int64 `json:"frames"`
	// Duration is how long it is shown or heard, without what primes a decoder.
	Duration float64 `json:"duration"`
	Segments int     `json:"segments"`
	// Bytes is the size of playlist, header and segments.
	Bytes int64 `json:"bytes"`
	// PeakBandwidth is the highest over any run of segments between half and
	// one and a half target durations long, as HLS defines it.
	PeakBandwidth    int64 `json:"peak_bandwidth"`
	AverageBandwidth int64 `json:"average_bandwidth"`

	// Group is the name of an audio rendition's rung, which the same rung of
	// other languages shares.
	Group string `json:"group,omitempty"`
	// Source is the index of the source's stream.
	Source     int    `json:"source"`
	Channels   int    `json:"channels,omitempty"`
	SampleRate int    `json:"sample_rate,omitempty"`
	Language   string `json:"language,omitempty"`
	Title      string `json:"title,omitempty"`
	Default    bool   `json:"default,omitempty"`
}

// Storyboard is a set of sheets with small pictures and the WebVTT file that
// says which part of which sheet belongs to which time.
type Storyboard struct {
	// VTT and Sheets are file names in the folder it was written to.
	VTT    string   `json:"vtt"`
	Sheets []string `json:"sheets"`
	// Interval is seconds between two pictures, Count how many there are.
	Interval float64 `json:"interval"`
	Count    int     `json:"count"`
	// Width and Height are those of one picture.
	Width  int `json:"width"`
	Height int `json:"height"`
	// Columns and Rows are those of a full sheet.
	Columns int `json:"columns"`
	Rows    int `json:"rows"`
}
