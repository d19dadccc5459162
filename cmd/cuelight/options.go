package main

import (
	"errors"
	"net/netip"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/media/sandbox"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// workOptions are the flags of commands that work on tasks.
type workOptions struct {
	ffmpeg, ffprobe string
	preset          string
	crf             int
	threads         int
	nice            int
	stall           time.Duration
	workers         map[string]int
	allow           []string
	maxDownload     byteSize
	maxDuration     time.Duration
	maxMemory       byteSize
	timeFactor      float64
	sandbox         string
	mediaUser       string
	mediaReadable   []string
	downloadTimeout time.Duration
	reserve         byteSize
	keepOld         time.Duration
	linkSources     bool
	grace           time.Duration
	lease           time.Duration
}

// The limits of the flags.
const (
	minStall    = time.Second     // so that a slow disk is no stall
	minLease    = 5 * time.Second // so that a busy machine can send a few heartbeats
	maxLease    = 24 * time.Hour
	maxDuration = 7 * 24 * time.Hour
	minMemory   = 256 << 20 // a small video needs it
)

func (c *cli) workFlags(cmd *cobra.Command) *workOptions {
	o := &workOptions{maxDownload: 100 << 30, reserve: 1 << 30}
	f := cmd.Flags()
	f.StringVar(&c.NotifyURL, "notify-url", "",
		"address of the same database for notifications, if --database-url leads to a pooler in transaction mode")
	f.StringVar(&c.PublishDir, "publish-dir", "", "directory for published videos (default DATA-DIR/published)")
	o.programFlags(f)
	f.StringVar(&o.preset, "preset", "veryfast", "speed of libx264 against file size, ultrafast to veryslow")
	f.IntVar(&o.crf, "crf", 23, "quality (CRF) within each rendition's maximum bitrate, 1 (best) to 51")
	f.IntVar(&o.threads, "threads", 0, "threads of each decoder, filter and encoder; 0 lets ffmpeg choose")
	f.IntVar(&o.nice, "nice", 10, "CPU priority of ffmpeg, 19 (lowest) to 0 (normal)")
	f.DurationVar(&o.stall, "stall", 2*time.Minute,
		"how long ffmpeg may make no progress before it is stopped and the stage retried; 0 for ever")
	f.StringToIntVar(&o.workers, "workers", nil,
		"concurrent tasks of each stage (default ingest=4,transcode=1,metadata=2,assemble=2,publish=2)")
	f.Lookup("workers").DefValue = "" // the text has the default
	f.StringSliceVar(&o.allow, "allow-network", nil,
		"network that is not public and may be downloaded from, such as 10.0.0.0/8; repeatable")
	f.Var(&o.maxDownload, "max-download", "largest download")
	f.DurationVar(&o.maxDuration, "max-duration", media.DefaultMaxDuration, "longest video that is accepted, up to 168h")
	f.Float64Var(&o.timeFactor, "time-factor", media.DefaultTimeFactor,
		"timeout of ffmpeg: half an hour and this many seconds for each second of video")
	f.DurationVar(&o.downloadTimeout, "download-timeout", 12*time.Hour, "timeout of a download in one attempt")
	f.Var(&o.reserve, "reserve", "disk space to keep free; 0 for none")
	f.DurationVar(&o.keepOld, "keep-old", 24*time.Hour,
		"how long a replaced version is kept for viewers who are playing it")
	f.BoolVar(&o.linkSources, "link-sources", false,
		"hard-link local sources instead of copying them; only if they are never modified")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "how long running stages may continue after the first signal")
	f.DurationVar(&o.lease, "lease", store.DefaultLease,
		"how long this process may lose contact with the database before other workers take its tasks")
	setting(f, "publish-dir", "preset", "crf", "threads", "nice", "stall", "workers", "allow-network",
		"max-download", "max-duration", "time-factor", "download-timeout", "reserve", "keep-old", "link-sources",
		"grace", "lease", "notify-url")
	return o
}

// programFlags adds the flags that select ffmpeg and its sandbox.
func (o *workOptions) programFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ffmpeg, "ffmpeg", "ffmpeg", "ffmpeg program")
	f.StringVar(&o.ffprobe, "ffprobe", "ffprobe", "ffprobe program")
	f.Var(&o.maxMemory, "max-memory",
		"memory limit of each ffmpeg and ffprobe (default half of the memory of this host or container, at least 1 GiB)")
	f.Lookup("max-memory").DefValue = "" // the text has the default
	f.StringVar(&o.sandbox, "sandbox", "auto",
		"sandbox of ffmpeg: auto (what this host supports), require (or refuse to start), off")
	f.StringVar(&o.mediaUser, "media-user", strconv.Itoa(media.DefaultUser),
		"user name or id for ffmpeg if cuelight runs as root")
	f.StringSliceVar(&o.mediaReadable, "media-readable", nil,
		"file or directory that a sandboxed ffmpeg may read and execute besides the system's; repeatable")
	setting(f, "ffmpeg", "ffprobe", "max-memory", "sandbox", "media-user", "media-readable")
}

// byteSize is a flag value for a number of bytes: 500M, 20GiB.
type byteSize int64

func (b *byteSize) Type() string { return "size" }
func (b *byteSize) String() string {
	return strings.ReplaceAll(strings.ReplaceAll(console.Size(int64(*b)), " ", ""), ".0", "")
}

// Set parses a number with a unit. KB, KiB and K are all 1024 bytes.
func (b *byteSize) Set(s string) error {
	upper := strings.ToUpper(strings.TrimSpace(s))
	number := strings.TrimRight(upper, "BI")
	shift := 0
	if i := strings.IndexAny(number, "KMGTPE"); i >= 0 && i == len(number)-1 {
		shift = 10 * (1 + strings.IndexByte("KMGTPE", number[i]))
		number = number[:i]
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(v >= 0) || v*float64(int64(1)<<shift) > 1<<62 {
		return errors.New("it must be a size such as 500M or 20G")
	}
	*b = byteSize(v * float64(int64(1)<<shift))
	return nil
}

// config checks the flags and returns the configuration of the stages.
func (o *workOptions) config(data, published string) (video.Config, error) {
	config := video.Config{
		DataDir: data, PublishDir: published,
		Tools: video.Tools{
			FFmpeg: o.ffmpeg, FFprobe: o.ffprobe, Preset: o.preset, CRF: o.crf, Threads: o.threads, Nice: o.nice,
			Stall: o.stall, MaxDuration: o.maxDuration, TimeFactor: o.timeFactor, Memory: int64(o.maxMemory),
		},
		MaxDownload: int64(o.maxDownload), DownloadTimeout: o.downloadTimeout,
		LinkSources: o.linkSources, Marker: daemon.IDFile, Reserve: int64(o.reserve), KeepOld: o.keepOld,
	}
	if o.stall == 0 {
		config.Tools.Stall = -1
	}
	if o.reserve == 0 {
		config.Reserve = -1
	}
	if o.keepOld <= 0 {
		config.KeepOld = -1
	}
	presets := []string{"ultrafast", "superfast", "veryfast", "faster", "fast", "medium", "slow", "slower", "veryslow"}
	switch {
	case !slices.Contains(presets, o.preset):
		return config, usererr.Usagef("--preset %s: it must be one of %s",
			usererr.Printable(o.preset), strings.Join(presets, ", "))
	case o.crf < 1 || o.crf > 51:
		return config, usererr.Usagef("--crf %d: it must be 1 to 51", o.crf)
	case o.nice < 0 || o.nice > 19:
		return config, usererr.Usagef("--nice %d: it must be 0 to 19", o.nice)
	case o.stall < 0 || o.stall > 0 && o.stall < minStall:
		return config, usererr.Usagef("--stall %s: it must be at least %s, or 0 for ever", o.stall, minStall)
	case o.threads < 0:
		return config, usererr.Usagef("--threads %d: it must not be negative", o.threads)
	case o.lease < minLease || o.lease > maxLease:
		return config, usererr.Usagef("--lease %s: it must be %s to 24h", o.lease, minLease)
	case o.maxDuration <= 0 || o.maxDuration > maxDuration:
		return config, usererr.Usagef("--max-duration %s: it must be positive and at most %s", o.maxDuration, maxDuration)
	case o.maxMemory != 0 && o.maxMemory < minMemory:
		return config, usererr.Usagef("--max-memory %s: ffmpeg needs at least %s", &o.maxMemory, console.Size(minMemory))
	case !(o.timeFactor >= 1):
		return config, usererr.Usagef("--time-factor %v: it must be at least 1", o.timeFactor)
	case o.maxDownload <= 0, o.downloadTimeout <= 0:
		return config, usererr.Usagef("--max-download and --download-timeout must be positive")
	}
	var err error
	if config.AllowNetworks, err = parseNetworks("--allow-network", o.allow); err != nil {
		return config, err
	}
	if err := o.confine(&config.Tools); err != nil {
		return config, err
	}
	return config, o.setWorkers(&config.Workers)
}

// confine sets the sandbox of ffmpeg from the flags.
func (o *workOptions) confine(t *video.Tools) error {
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
		return usererr.Usagef("--sandbox %s: it must be auto, require or off", usererr.Printable(o.sandbox))
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
		return usererr.Usagef("--media-user %s: it must be a user other than root", usererr.Printable(o.mediaUser))
	}
	t.User = number
	for _, path := range o.mediaReadable {
		if !filepath.IsAbs(path) || path == "/" {
			return usererr.Usagef("--media-readable %s: it must be an absolute path other than /", usererr.Printable(path))
		}
	}
	t.Readable = o.mediaReadable
	return nil
}

// parseNetwork parses a network or a single address.
func parseNetwork(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Prefix(addr.BitLen())
	}
	return netip.ParsePrefix(s)
}

// parseNetworks parses the networks of a flag.
func parseNetworks(flag string, texts []string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range texts {
		network, err := parseNetwork(text)
		if err != nil {
			return nil, usererr.Usagef("%s %s: it must be a network, such as 10.0.0.0/8", flag, usererr.Printable(text))
		}
		networks = append(networks, network)
	}
	return networks, nil
}

func (o *workOptions) setWorkers(w *video.Workers) error {
	fields := map[string]*int{
		"ingest": &w.Ingest, "transcode": &w.Transcode, "metadata": &w.Metadata,
		"assemble": &w.Assemble, "publish": &w.Publish,
	}
	for stage, n := range o.workers {
		field := fields[stage]
		if field == nil {
			return usererr.Usagef("--workers: unknown stage %s; allowed: %s",
				usererr.Printable(stage), strings.Join(store.Video().Stages(), ", "))
		}
		if n < 1 || n > 1000 {
			return usererr.Usagef("--workers %s=%d: it must be 1 to 1000", stage, n)
		}
		*field = n
	}
	return nil
}
