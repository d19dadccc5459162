package media

import (
	"errors"
	"time"
)

// Tools names ffmpeg and ffprobe and says how to run them. The zero value
// works: both programs come from PATH and every option has its default. A Tools
// is a plain value; copies are independent. Its methods may run concurrently.
type Tools struct {
	// FFmpeg and FFprobe are paths or names of the programs. Empty means
	// "ffmpeg" and "ffprobe" from PATH.
	FFmpeg, FFprobe string

	// Whisper is the path or name of whisper-cli, a program of whisper.cpp, and WhisperModel that of its model, for
	// RecognizeSpeech. An empty Whisper means "whisper-cli" from PATH.
	Whisper, WhisperModel string

	// Encoders are the H.264 encoders that Transcode may use, the preferred one
	// first: libx264, h264_nvenc, h264_qsv, h264_vaapi, or "hardware" for the last
	// three. It uses the first that this ffmpeg has, whose device is there and has
	// not failed in the last ten minutes (see Cache), and whose limits allow the
	// renditions. libx264 is always the last. If a hardware encoder fails,
	// Transcode begins again with libx264. Empty means libx264 alone, because
	// hardware encoders make larger or worse files.
	Encoders []string
	// Preset is libx264's trade of time for size, from "ultrafast" to
	// "veryslow". Empty means "veryfast".
	Preset string
	// CRF is the target quality, 1 (best) to 51; each rung's highest bitrate
	// caps it. Zero means 24.
	CRF int
	// Threads limits each decoder, filter graph and encoder of ffmpeg. Zero
	// lets ffmpeg use all cores.
	Threads int
	// Nice lowers the priority of the children, 1 to 19; on Linux that of
	// their sessions, too. Zero means the priority of this process.
	Nice int
	// Stall is how long a child may be inactive before it is killed and the
	// call returns [ErrStalled]. An inactive child makes no progress and, on
	// Linux, uses no processor and no I/O. Zero means two minutes, enough for a
	// disk that spins up or a file server that restarts. Negative means never.
	// A child that is active without progress, such as a decoder in an endless
	// loop, is killed after five times as much processor time. For a child that
	// waits for a processor, see [ErrStarved].
	Stall time.Duration
	// Memory is how many bytes a child and its descendants may have resident
	// before they are killed and the call returns [ErrMemory]. It is checked
	// four times a second, on Linux only. Zero means half the memory of this
	// host or control group, but at least 1 GiB. Negative means no limit.
	Memory int64
	// Sandbox says how far children are confined. It works on Linux only.
	Sandbox Sandbox
	// User is the user and group id that children run as if this process is
	// root and may change it. Zero means [DefaultUser].
	User int
	// Readable lists files and directories that confined children may read and
	// execute programs in, in addition to those of the system.
	Readable []string
	// MaxDuration is the longest accepted source, at most a week. Zero means
	// [DefaultMaxDuration].
	MaxDuration time.Duration
	// TimeFactor is how many seconds a call may take for each second of its
	// source, plus half an hour; then it returns [ErrTooLong]. A transcode that
	// begins again with libx264 has the time again. Zero means
	// [DefaultTimeFactor]. Negative means no limit.
	TimeFactor float64
	// Cache, if set, remembers the capabilities of the programs, so that they
	// are not queried again, and hardware encoders that failed.
	Cache *CapabilityCache
	// Source, if set, is not a file: children read it by ranges through this
	// process. Probe needs a file. See CheckServe.
	Source *ServedSource
	// Step, if set, is called when a method makes progress, with a number that
	// rises from 1. While a child runs, it is called at most about once a
	// second. It lets a watchdog tell slow work from stalled work. Calls do not
	// overlap, and none follows the method's return.
	Step func(n int64)

	steps         *int64        // steps of the current call
	probeDecoders decoderSet    // set while a source is probed
	minTimeLimit  time.Duration // replaces the constant in tests
	maxFiles      int           // replaces the constant in tests
	root          string        // replaces / in tests, for the files of devices
}

// DefaultMaxDuration is longer than most events and recordings, and as much as
// the large video sites accept.
const DefaultMaxDuration = 12 * time.Hour

// These errors match with [errors.Is]. All but ErrNoPicture are about this host
// or this attempt, not about the source: another attempt or host may succeed.
var (
	// ErrToolMissing means that ffmpeg or ffprobe is not installed, or lacks a
	// required encoder.
	ErrToolMissing = errors.New("tool missing")
	// ErrSandbox means that a child could not be confined as Tools.Sandbox
	// requires, or that its program could not be started.
	ErrSandbox = errors.New("cannot run in a sandbox")
	// ErrStalled means that a child made no progress for Tools.Stall and was
	// killed.
	ErrStalled = errors.New("no progress")
	// ErrStarved means that a child was runnable for ten times Tools.Stall,
	// made no progress, got less than a hundredth of a processor, and was
	// killed. The host is overloaded.
	ErrStarved = errors.New("no processor time")
	// ErrTooLong means that the call exceeded the limit of Tools.TimeFactor.
	ErrTooLong = errors.New("time limit exceeded")
	// ErrMemory means that a child used more than Tools.Memory and was killed,
	// or that the host ran out of memory.
	ErrMemory = errors.New("not enough memory")
	// ErrNoSpace means that the disk or a quota is full.
	ErrNoSpace = errors.New("no space left")
	// ErrSourceNotReadable means that only root may read the source, and
	// ffmpeg does not run as root.
	ErrSourceNotReadable = errors.New("other users may not read the source")
	// ErrMismatch means that the output is not a complete and sound copy of
	// the source. It must not be published.
	ErrMismatch = errors.New("output does not match the source")
	// ErrNoPicture means that the source has no picture for a poster or
	// storyboard.
	ErrNoPicture = errors.New("no picture")
)

// RejectedError says that a source can never be published as it is, on any host
// and in any attempt. Match it with [errors.As].
type RejectedError struct {
	// Reason is a sentence for the person who submitted the source, without a
	// full stop: "the video is encrypted".
	Reason string
	// Detail is the end of ffprobe's or ffmpeg's messages, for diagnosis. It
	// may be empty or have several lines.
	Detail string
}

// Error returns the reason only.
func (e *RejectedError) Error() string { return e.Reason }
