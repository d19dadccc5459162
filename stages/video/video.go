package video

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// The names of the stages.
const (
	ingestStage    = "ingest"
	transcodeStage = "transcode"
	metadataStage  = "metadata"
	assembleStage  = "assemble"
	publishStage   = "publish"
)

// Config says where the stages work and within which limits. DataDir and
// PublishDir must be set; every other field has a useful zero value.
type Config struct {
	// DataDir holds sources and everything that is made of them on the way. It
	// must exist: a directory that is missing is taken for a disk that is not
	// mounted, and nothing is written in its place.
	DataDir string

	// PublishDir holds what players are served. It must exist. On the same
	// file system as DataDir, publishing takes no space and hardly any time.
	PublishDir string

	// Tools are ffmpeg and ffprobe. Default: those in PATH.
	Tools Tools

	// Workers is how many tasks one process works on at once, per stage.
	Workers Workers

	// AllowNetworks may be downloaded from although they are not public.
	// Default none: an http(s) source must have a public address, also after
	// every redirect.
	AllowNetworks []netip.Prefix

	// MaxDownload is the largest download, in bytes. Default 100 GiB.
	MaxDownload int64

	// DownloadTimeout ends a download that has taken longer in one attempt;
	// the next one continues it where the server allows. Default 12 h.
	DownloadTimeout time.Duration

	// LinkSources allows hard links to local sources where the file system
	// has no reflinks, instead of copies. It is right only if nobody writes
	// into a source once it is submitted; replacing one by rename is harmless.
	LinkSources bool

	// Reserve is how many bytes are kept free on either disk. Default 1 GiB;
	// negative: none.
	Reserve int64

	// KeepOld is how long a published generation stays after it was replaced,
	// for those who are playing it, and an hour longer, in case clocks are
	// wrong. It is removed by a Tidier, or when the task is published for the
	// next time after that. Default 24 h; negative: not at all.
	KeepOld time.Duration

	// Marker names a file that lies in DataDir and in PublishDir for as long as
	// their disks are mounted. Where it is missing, nothing is written: else
	// whatever is below a mount point would be taken for the disk. Default "":
	// the directories need only exist.
	Marker string

	// Stall is how long an attempt may make no progress before it is cancelled
	// and fails, whatever it is doing: not one more byte fetched, packet read,
	// frame made, or file checked, linked or put on disk. An ffmpeg that is alive,
	// as Tools.Stall has it, makes progress, also where it waits for a processor.
	// Default five times Tools.Stall, but at least 10 min; negative: for ever, as
	// it is where Tools.Stall is negative.
	Stall time.Duration
}

// Workers is how many tasks one process works on at once in each stage. Zero
// is the default.
type Workers struct {
	Ingest    int // default 4: it waits for disks and networks
	Transcode int // default 1: one ffmpeg keeps all cores busy
	Metadata  int // default 2
	Assemble  int // default 2
	Publish   int // default 2
}

const (
	defaultReserve = 1 << 30
	defaultKeepOld = 24 * time.Hour
	defaultStall   = 10 * time.Minute
)

// Stages are the five stages of the built-in pipeline.
func Stages(c Config) []stages.Stage {
	c = c.withCache()
	return []stages.Stage{c.Ingest(), c.Transcode(), c.Metadata(), c.Assemble(), c.Publish()}
}

// Pipeline returns the built-in pipeline of the given stages, usually [Stages], on the
// tables of [store.Video].
func Pipeline(all ...stages.Stage) (*stages.Pipeline, error) {
	p, err := stages.New(store.Video().Name(), all...)
	if err != nil {
		return nil, err
	}
	return p.WithTablePrefix(store.Video().TablePrefix())
}

// withCache makes the stages ask ffmpeg only once what it can do.
func (c Config) withCache() Config {
	if c.Tools.Cache == nil {
		c.Tools.Cache = new(media.CapabilityCache)
	}
	return c
}

func (c Config) stall() time.Duration {
	switch {
	case c.Stall < 0, c.Stall == 0 && c.Tools.Stall < 0:
		return 0
	case c.Stall > 0:
		return c.Stall
	}
	return max(defaultStall, 5*c.Tools.Stall)
}

func (c Config) reserve() int64 {
	if c.Reserve == 0 {
		return defaultReserve
	}
	return max(c.Reserve, 0)
}

func (c Config) keepOld() time.Duration {
	if c.KeepOld == 0 {
		return defaultKeepOld
	}
	return max(c.KeepOld, 0)
}

// work makes a stage's Work of a function that does it, and sorts its errors.
// The stage works in the data directory, and perhaps in another.
func work[T any](c Config, do func(ctx context.Context, job *stages.Job) (T, error), dirs ...rootDir) stages.Work {
	dirs = append([]rootDir{{"data", c.DataDir}}, dirs...)
	return func(ctx context.Context, job *stages.Job) (any, error) {
		job, note := withLastNote(job)
		result, err := do(ctx, job)
		switch {
		case err == nil:
			return result, nil
		case errors.Is(context.Cause(ctx), stages.ErrStalled):
			return nil, fmt.Errorf("the last that was heard of it is %q", note())
		}
		return nil, classify(ctx, c.preferMissingRoot(err, dirs), job.Attempt)
	}
}

// rootDir is one of the two directories that hold everything.
type rootDir struct{ name, dir string }

// preferMissingRoot puts an error down to a directory that is not there any more, if there
// is one, whatever it looked like.
func (c Config) preferMissingRoot(err error, dirs []rootDir) error {
	var gone *missingError
	if errors.As(err, &gone) {
		return err
	}
	for _, r := range dirs {
		if missing := c.checkRoot(r.name, r.dir); errors.As(missing, &gone) {
			return fmt.Errorf("%w (%v)", missing, err)
		}
	}
	return err
}

// Tools are the programs the stages run, and how they run them; the zero value
// takes them from PATH.
type Tools = media.Tools
