package main

import (
	"cmp"
	"errors"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/media/sandbox"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// workOptions are the flags of commands that work on tasks.
type workOptions struct {
	ffmpeg, ffprobe string
	encoders        []string
	preset          string
	crf             int
	threads         int
	nice            int
	stall           time.Duration
	slots           map[string]int
	allow           networks
	maxDownload     byteSize
	maxDuration     time.Duration
	maxMemory       byteSize
	timeFactor      float64
	sandbox         string
	mediaUser       string
	mediaReadable   []string
	downloadTimeout time.Duration
	reserve         byteSize
	scratchLimit    byteSize
	keepOld         retention
	// keepSourceCopies is a flag of serve, whose cleanup removes them.
	keepSourceCopies retention
	chunk            chunkLength
	minDivided       time.Duration
	linkSources      bool
	encryption       encryptionFlags
	grace            time.Duration
	lease            time.Duration
	name             string // of the worker; empty for the host's
	labels           labels
	untilIdle        time.Duration
	// whisper and whisperModel are flags of serve, which makes automatic captions.
	whisper, whisperModel string
}

// The limits of the flags.
const (
	minStall    = time.Second     // so that a slow disk is no stall
	minLease    = 5 * time.Second // so that a busy machine can send a few heartbeats
	maxLease    = 24 * time.Hour
	maxDuration = 7 * 24 * time.Hour
	minMemory   = 256 << 20 // a small video needs it
	minScratch  = 1 << 30   // a video of some minutes needs it
)

// newWorkOptions returns options with the defaults that their flags do not set.
func newWorkOptions() *workOptions {
	return &workOptions{keepOld: retention(day), maxDownload: 100 << 30, reserve: 1 << 30, chunk: chunkLength(media.DefaultChunkLength)}
}

func (c *cli) workFlags(cmd *cobra.Command) *workOptions {
	o := newWorkOptions()
	f := cmd.Flags()
	f.StringVar(&c.NotifyURL, "notify-url", "",
		"address of the same database for notifications, if --database-url leads to a pooler in transaction mode")
	c.machineFlags(f, o)
	o.transcodeFlags(f)
	f.StringToIntVar(&o.slots, "slots", nil,
		"concurrent tasks of each stage; 0 leaves it to other workers (default ingest=4,transcode=1,metadata=2,assemble=2,publish=2)")
	f.Lookup("slots").DefValue = "" // the text has the default
	f.Var(&o.allow, "allow-network",
		"network that is not public and may be downloaded from, such as 10.0.0.0/8; repeatable")
	f.Var(&o.maxDownload, "max-download", "largest download")
	f.DurationVar(&o.downloadTimeout, "download-timeout", 12*time.Hour, "timeout of a download in one attempt")
	f.Var(&o.keepOld, "keep-old", "how long a replaced version is kept for viewers who are playing it; 0 for ever")
	f.Var(&o.chunk, "chunk",
		"how much of a video each part of its transcode makes, 6s to 1h, or never to transcode every video whole")
	f.DurationVar(&o.minDivided, "min-divided", 0, "shortest video that is divided (default two chunks)")
	f.BoolVar(&o.linkSources, "link-sources", false,
		"hard-link local sources instead of copying them; only if they are never modified")
	o.encryption.add(f)
	f.StringVar(&o.name, "name", "", "name of this worker in lists, the history and events (default the host's name)")
	f.DurationVar(&o.lease, "lease", store.DefaultLease,
		"how long this process may lose contact with the database before other workers take its tasks")
	bindEnvironment(f)
	return o
}

// readURLFlag adds the flag of `cuelight serve` and `cuelight doctor`.
func (c *cli) readURLFlag(f *pflag.FlagSet) {
	f.StringVar(&c.ReadURL, "read-database-url", "",
		"address of a standby of the database, for what the dashboard and the API read")
}

// transcodeFlags adds the flags of work with ffmpeg, wherever the files are.
func (o *workOptions) transcodeFlags(f *pflag.FlagSet) {
	f.StringVar(&o.preset, "preset", "veryfast", "speed of libx264 against file size, ultrafast to veryslow")
	f.IntVar(&o.crf, "crf", 24, "quality (CRF) within each rendition's maximum bitrate, 1 (best) to 51")
	f.IntVar(&o.threads, "threads", 0, "threads of each decoder, filter and encoder; 0 lets ffmpeg choose")
	f.IntVar(&o.nice, "nice", 10, "CPU priority of ffmpeg, 19 (lowest) to 0 (normal)")
	f.DurationVar(&o.stall, "stall", 2*time.Minute,
		"how long ffmpeg may make no progress before it is stopped and the stage retried; 0 for ever")
	f.DurationVar(&o.maxDuration, "max-duration", media.DefaultMaxDuration, "longest video that is accepted, up to 168h")
	f.Float64Var(&o.timeFactor, "time-factor", media.DefaultTimeFactor,
		"timeout of ffmpeg: half an hour and this many seconds for each second of video")
	f.Var(&o.reserve, "reserve", "disk space to keep free; 0 for none")
	f.Var(&o.scratchLimit, "scratch-limit",
		"disk space for files of attempts whose results are elsewhere, at least 1G (default what --reserve leaves)")
	f.Lookup("scratch-limit").DefValue = "" // the text has the default
	f.DurationVar(&o.grace, "grace", 30*time.Second, "how long running stages may continue after the first signal")
}

// machineFlags adds the flags that `cuelight doctor` checks: the directory of published
// videos, ffmpeg and its sandbox.
func (c *cli) machineFlags(f *pflag.FlagSet, o *workOptions) {
	c.publishDirFlag(f)
	o.toolFlags(f)
	bindEnvironment(f)
}

func (c *cli) publishDirFlag(f *pflag.FlagSet) {
	f.StringVar(&c.PublishDir, "publish-dir", "", "directory for published videos, or s3://BUCKET/PREFIX (default DATA-DIR/published)")
	bindEnvironment(f)
}

// toolFlags adds the flags of ffmpeg and its sandbox.
func (o *workOptions) toolFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ffmpeg, "ffmpeg", "ffmpeg", "ffmpeg program")
	f.StringVar(&o.ffprobe, "ffprobe", "ffprobe", "ffprobe program")
	f.StringSliceVar(&o.encoders, "encoders", []string{"libx264"},
		"H.264 encoders, the preferred one first: libx264, h264_nvenc, h264_qsv, h264_vaapi, or hardware for the last three. "+
			"Hardware is faster, and its files are larger or worse; libx264 does what it cannot")
	f.Var(&o.maxMemory, "max-memory",
		"memory limit of each ffmpeg and ffprobe (default half of the memory of this host or container, at least 1 GiB)")
	f.Lookup("max-memory").DefValue = "" // the text has the default
	f.StringVar(&o.sandbox, "sandbox", "auto",
		"sandbox of ffmpeg: auto (what this host supports), require (or refuse to start), off")
	f.StringVar(&o.mediaUser, "media-user", strconv.Itoa(media.DefaultUser),
		"user name or id for ffmpeg if cuelight runs as root")
	f.StringSliceVar(&o.mediaReadable, "media-readable", nil,
		"file or directory that a sandboxed ffmpeg may read and execute besides the system's; repeatable")
}

// labelFlag adds the flag of processes that take the tasks of others.
func (o *workOptions) labelFlag(f *pflag.FlagSet) {
	f.Var(&o.labels, "label", "label that tasks may ask for; repeatable")
}

// untilIdleFlag adds the flag of processes that end without work.
func (o *workOptions) untilIdleFlag(f *pflag.FlagSet) {
	f.DurationVar(&o.untilIdle, "until-idle", 0, "exit after so long without work; 0 never")
	f.Lookup("until-idle").NoOptDefVal = "1m"
}

func (o *workOptions) checkUntilIdle() flagCheck {
	return flagCheck{o.untilIdle >= 0, "until-idle", o.untilIdle, "positive, or 0 for never"}
}

// config checks the flags and returns the configuration of the stages.
func (o *workOptions) config(data, published string) (video.Config, error) {
	config := video.Config{
		DataDir: data, PublishDir: published,
		Tools: video.Tools{
			FFmpeg: o.ffmpeg, FFprobe: o.ffprobe, Preset: o.preset, CRF: o.crf, Threads: o.threads, Nice: o.nice,
			Stall: cmp.Or(o.stall, -1), MaxDuration: o.maxDuration, TimeFactor: o.timeFactor, Memory: int64(o.maxMemory),
			Cache: new(media.CapabilityCache), Whisper: o.whisper, WhisperModel: o.whisperModel,
		},
		MaxDownload: int64(o.maxDownload), DownloadTimeout: o.downloadTimeout,
		AllowNetworks: o.allow, LinkSources: o.linkSources, Marker: video.IDFile,
		ChunkLength: time.Duration(o.chunk), MinDivided: o.minDivided,
		// For the stages, 0 is the default.
		ScratchLimit: int64(o.scratchLimit),
		Reserve:      cmp.Or(int64(o.reserve), -1), KeepOld: cmp.Or(time.Duration(o.keepOld), forEver),
		KeepSourceCopies: time.Duration(o.keepSourceCopies),
	}
	return config, errors.Join(o.check(), o.setEncoders(&config.Tools), o.setSandbox(&config.Tools), o.setSlots(&config.Slots))
}

// checkConfig checks the flags without the directories.
func (o *workOptions) checkConfig() error {
	_, err := o.config("", "")
	return err
}

// check checks the flags that have limits.
func (o *workOptions) check() error {
	presets := []string{"ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow"}
	return checkFlags(
		flagCheck{slices.Contains(presets, o.preset), "preset", o.preset, "one of " + strings.Join(presets, ", ")},
		flagCheck{o.crf >= 1 && o.crf <= 51, "crf", o.crf, "1 to 51"},
		flagCheck{o.name == "" || store.CheckWorkerName(o.name) == nil, "name", o.name, "1 to 100 printable characters"},
		o.encryption.check(),
		flagCheck{o.nice >= 0 && o.nice <= 19, "nice", o.nice, "0 to 19"},
		flagCheck{o.stall == 0 || o.stall >= minStall, "stall", o.stall, "at least 1s, or 0 for ever"},
		flagCheck{o.threads >= 0, "threads", o.threads, "0 or more"},
		flagCheck{o.lease >= minLease && o.lease <= maxLease, "lease", o.lease, "5s to 24h"},
		flagCheck{o.maxDuration > 0 && o.maxDuration <= maxDuration, "max-duration", o.maxDuration, "positive and at most 168h"},
		flagCheck{o.maxMemory == 0 || o.maxMemory >= minMemory, "max-memory", &o.maxMemory, "at least 256M for ffmpeg"},
		flagCheck{o.scratchLimit == 0 || o.scratchLimit >= minScratch, "scratch-limit", &o.scratchLimit, "at least 1G"},
		flagCheck{o.timeFactor >= 1, "time-factor", o.timeFactor, "at least 1"},
		flagCheck{o.maxDownload > 0, "max-download", &o.maxDownload, "positive"},
		flagCheck{o.minDivided >= 0, "min-divided", o.minDivided, "0 or more"},
		flagCheck{o.downloadTimeout > 0, "download-timeout", o.downloadTimeout, "positive"},
	)
}

// setEncoders sets the encoders from the flag.
func (o *workOptions) setEncoders(t *video.Tools) (err error) {
	if t.Encoders, err = media.ParseEncoders(o.encoders); err != nil {
		return usererr.Usagef("--encoders: %s", usererr.Printable(err.Error()))
	}
	return nil
}

// setSandbox sets the sandbox of ffmpeg from the flags.
func (o *workOptions) setSandbox(t *video.Tools) error {
	switch o.sandbox {
	case "auto":
	case "require":
		t.Sandbox = media.SandboxRequire
		if err := sandbox.Check(); err != nil {
			return &usererr.Error{
				Kind: usererr.Usage, Text: "--sandbox require: " + err.Error(),
				Hint: "cuelight doctor shows what this host supports; --sandbox auto uses that",
			}
		}
	case "off":
		t.Sandbox = media.SandboxOff
	default:
		return invalidFlag("sandbox", o.sandbox, "auto, require or off")
	}
	number, err := strconv.Atoi(o.mediaUser)
	if err != nil {
		account, lookupErr := user.Lookup(o.mediaUser)
		if lookupErr != nil {
			return usererr.Usagef("--media-user %s: the user does not exist", usererr.Printable(o.mediaUser))
		}
		number, _ = strconv.Atoi(account.Uid)
	}
	if number < 1 || number > 1<<31-1 {
		return invalidFlag("media-user", o.mediaUser, "a user other than root")
	}
	t.User = number
	for _, path := range o.mediaReadable {
		if !filepath.IsAbs(path) || path == "/" {
			return invalidFlag("media-readable", path, "an absolute path other than /")
		}
	}
	t.Readable = o.mediaReadable
	return nil
}

func (o *workOptions) setSlots(s *video.Slots) error {
	fields := map[string]*int{
		"ingest": &s.Ingest, "transcode": &s.Transcode, "metadata": &s.Metadata,
		"assemble": &s.Assemble, "publish": &s.Publish,
	}
	for stage, n := range o.slots {
		field := fields[stage]
		if field == nil {
			return usererr.Usagef("--slots: unknown stage %s; allowed: %s",
				usererr.Printable(stage), strings.Join(store.Video().Stages(), ", "))
		}
		if n < 0 || n > 1000 {
			return usererr.Usagef("--slots %s=%d: it must be 0 to 1000", stage, n)
		}
		*field = cmp.Or(n, -1) // for a stage, 0 is the default and a negative number is none
	}
	return nil
}
