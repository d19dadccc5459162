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

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/media/sandbox"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// workOptions are the flags of the commands that do the work.
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

// shortestStall leaves a disk time to answer.
const shortestStall = time.Second

const (
	week = 7 * 24 * time.Hour
	// leastMemory is what a small video takes.
	leastMemory = 256 << 20
)

// shortestLease leaves a busy machine time for a few beats.
const shortestLease = 5 * time.Second

func (c *cli) workFlags(cmd *cobra.Command) *workOptions {
	o := &workOptions{maxDownload: 100 << 30, reserve: 1 << 30}
	f := cmd.Flags()
	f.StringVar(&c.NotifyURL, "notify-url", "", "address of the same database for notifications alone, where the other one leads through a pooler in transaction mode")
	f.StringVar(&c.PublishDir, "publish-dir", "", "where published videos go (default DATA-DIR/published)")
	o.programFlags(f)
	f.StringVar(&o.preset, "preset", "veryfast", "libx264's trade of time for size, ultrafast to veryslow")
	f.IntVar(&o.crf, "crf", 23, "quality below each rendition's highest bitrate, 1 (best) to 51")
	f.IntVar(&o.threads, "threads", 0, "threads of each decoder, filter and encoder; 0 leaves it to ffmpeg")
	f.IntVar(&o.nice, "nice", 10, "priority of ffmpeg, 19 (lowest) to 0 (as everything else)")
	f.DurationVar(&o.stall, "stall", 2*time.Minute, "how long ffmpeg may do nothing before it is stopped and the stage tried again; 0 for ever")
	f.StringToIntVar(&o.workers, "workers", nil, "tasks worked on at once per stage (default ingest=4,transcode=1,metadata=2,assemble=2,publish=2)")
	f.Lookup("workers").DefValue = "" // the default is in the text; an empty map is not worth showing
	f.StringSliceVar(&o.allow, "allow-network", nil, "network that may be downloaded from although it is not public, such as 10.0.0.0/8; repeatable")
	f.Var(&o.maxDownload, "max-download", "largest download")
	f.DurationVar(&o.maxDuration, "max-duration", media.DefaultMaxDuration, "longest video that is taken, up to 168h")
	f.Float64Var(&o.timeFactor, "time-factor", media.DefaultTimeFactor, "seconds that ffmpeg may take per second of video, beside half an hour, before the attempt fails")
	f.DurationVar(&o.downloadTimeout, "download-timeout", 12*time.Hour, "longest download in one attempt")
	f.Var(&o.reserve, "reserve", "disk space to keep free; 0 for none")
	f.DurationVar(&o.keepOld, "keep-old", 24*time.Hour, "how long a replaced version stays for those who are playing it")
	f.BoolVar(&o.linkSources, "link-sources", false, "hard-link local sources instead of copying; only if nobody writes into them")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "how long running stages may go on after the first signal")
	f.DurationVar(&o.lease, "lease", store.DefaultLease, "how long this process may be out of touch with the database before others take its work")
	setting(f, "publish-dir", "preset", "crf", "threads", "nice", "stall", "workers", "allow-network",
		"max-download", "max-duration", "time-factor", "download-timeout", "reserve", "keep-old", "link-sources", "grace", "lease", "notify-url")
	return o
}

// programFlags say which ffmpeg runs, and how far it is confined.
func (o *workOptions) programFlags(f *pflag.FlagSet) {
	f.StringVar(&o.ffmpeg, "ffmpeg", "ffmpeg", "the ffmpeg program")
	f.StringVar(&o.ffprobe, "ffprobe", "ffprobe", "the ffprobe program")
	f.Var(&o.maxMemory, "max-memory", "most memory of one ffmpeg or ffprobe; it is stopped beyond (default half of what this host or container has, at least 1 GiB)")
	f.Lookup("max-memory").DefValue = "" // it is in the text
	f.StringVar(&o.sandbox, "sandbox", "auto", "confine ffmpeg: auto (as far as this host can), require (or do not start), off")
	f.StringVar(&o.mediaUser, "media-user", strconv.Itoa(media.DefaultUser), "user, by name or number, that ffmpeg runs as where cuelight runs as root")
	f.StringSliceVar(&o.mediaReadable, "media-readable", nil, "file or directory outside of the system's that a confined ffmpeg may read and execute; repeatable")
	setting(f, "ffmpeg", "ffprobe", "max-memory", "sandbox", "media-user", "media-readable")
}

// byteSize is a flag's number of bytes: 500M, 20GiB.
type byteSize int64

func (b *byteSize) Type() string { return "size" }
func (b *byteSize) String() string {
	return strings.ReplaceAll(strings.ReplaceAll(bytesText(int64(*b)), " ", ""), ".0", "")
}

// Set reads a number with a unit, which is a power of 1024 however it is
// written.
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
		return errors.New("a size is a number with a unit, such as 500M or 20G")
	}
	*b = byteSize(v * float64(int64(1)<<shift))
	return nil
}

// config is what the stages need, checked as far as it can be without them.
func (o *workOptions) config(data, published string) (video.Config, error) {
	config := video.Config{
		DataDir: data, PublishDir: published,
		Tools: video.Tools{
			FFmpeg: o.ffmpeg, FFprobe: o.ffprobe, Preset: o.preset, CRF: o.crf, Threads: o.threads, Nice: o.nice,
			Stall: o.stall, MaxDuration: o.maxDuration, TimeFactor: o.timeFactor, Memory: int64(o.maxMemory),
		},
		MaxDownload: int64(o.maxDownload), DownloadTimeout: o.downloadTimeout,
		LinkSources: o.linkSources, Marker: idFile, Reserve: int64(o.reserve), KeepOld: o.keepOld,
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
		return config, usererr.Usagef("--preset %s: it is one of %s", usererr.Printable(o.preset), strings.Join(presets, ", "))
	case o.crf < 1 || o.crf > 51:
		return config, usererr.Usagef("--crf %d: it is 1 to 51", o.crf)
	case o.nice < 0 || o.nice > 19:
		return config, usererr.Usagef("--nice %d: it is 0 to 19", o.nice)
	case o.stall < 0 || o.stall > 0 && o.stall < shortestStall:
		return config, usererr.Usagef("--stall %s: it is %s or more, or 0 for ever", o.stall, shortestStall)
	case o.threads < 0:
		return config, usererr.Usagef("--threads %d: it cannot be negative", o.threads)
	case o.lease < shortestLease || o.lease > 24*time.Hour:
		return config, usererr.Usagef("--lease %s: it is %s to 24h", o.lease, shortestLease)
	case o.maxDuration <= 0 || o.maxDuration > week:
		return config, usererr.Usagef("--max-duration %s: it is more than nothing and at most %s", o.maxDuration, week)
	case o.maxMemory != 0 && o.maxMemory < leastMemory:
		return config, usererr.Usagef("--max-memory %s: ffmpeg needs at least %s", &o.maxMemory, bytesText(leastMemory))
	case !(o.timeFactor >= 1):
		return config, usererr.Usagef("--time-factor %v: it is 1 or more", o.timeFactor)
	case o.maxDownload <= 0, o.downloadTimeout <= 0:
		return config, usererr.Usagef("--max-download and --download-timeout must be more than nothing")
	}
	var err error
	if config.AllowNetworks, err = networksOf("--allow-network", o.allow); err != nil {
		return config, err
	}
	if err := o.confine(&config.Tools); err != nil {
		return config, err
	}
	return config, o.setWorkers(&config.Workers)
}

// confine reads the flags that say how ffmpeg is confined.
func (o *workOptions) confine(t *video.Tools) error {
	switch o.sandbox {
	case "auto":
	case "require":
		t.Sandbox = media.SandboxRequire
		if err := sandbox.Check(); err != nil {
			return &usererr.Error{
				Kind: usererr.Usage, Text: "--sandbox require: " + err.Error(), Hint: "cuelight doctor says what there is; --sandbox auto does with that",
			}
		}
	case "off":
		t.Sandbox = media.SandboxOff
	default:
		return usererr.Usagef("--sandbox %s: it is auto, require or off", usererr.Printable(o.sandbox))
	}
	number, err := strconv.Atoi(o.mediaUser)
	if err != nil {
		account, lookupErr := user.Lookup(o.mediaUser)
		if lookupErr != nil {
			return usererr.Usagef("--media-user %s: there is no such user", usererr.Printable(o.mediaUser))
		}
		number, _ = strconv.Atoi(account.Uid)
	}
	if number < 1 || number > 1<<31-1 {
		return usererr.Usagef("--media-user %s: it is a user other than root", usererr.Printable(o.mediaUser))
	}
	t.User = number
	for _, path := range o.mediaReadable {
		if !filepath.IsAbs(path) || path == "/" {
			return usererr.Usagef("--media-readable %s: it is an absolute path, and not all there is", usererr.Printable(path))
		}
	}
	t.Readable = o.mediaReadable
	return nil
}

// parseNetwork reads a network or a single address.
func parseNetwork(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return addr.Prefix(addr.BitLen())
	}
	return netip.ParsePrefix(s)
}

// networksOf are networks as they are written for a flag, a single address being one,
// too.
func networksOf(flag string, texts []string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range texts {
		network, err := parseNetwork(text)
		if err != nil {
			return nil, usererr.Usagef("%s %s: it is not a network, such as 10.0.0.0/8", flag, usererr.Printable(text))
		}
		networks = append(networks, network)
	}
	return networks, nil
}

func (o *workOptions) setWorkers(w *video.Workers) error {
	fields := map[string]*int{
		"ingest": &w.Ingest, "transcode": &w.Transcode, "metadata": &w.Metadata, "assemble": &w.Assemble, "publish": &w.Publish,
	}
	for stage, n := range o.workers {
		field := fields[stage]
		if field == nil {
			return usererr.Usagef("--workers: there is no stage %s; the stages are %s", usererr.Printable(stage), strings.Join(store.Video().Stages(), ", "))
		}
		if n < 1 || n > 1000 {
			return usererr.Usagef("--workers %s=%d: it is 1 to 1000", stage, n)
		}
		*field = n
	}
	return nil
}
