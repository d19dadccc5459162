package video

import (
	"context"
	"net/netip"
	"time"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
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
	// for those who are playing it. It is removed when the task is published
	// for the next time after that. Default 24 h; negative: not at all.
	KeepOld time.Duration
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
)

// Stages are the five stages of the built-in pipeline.
func Stages(c Config) []stages.Stage {
	return []stages.Stage{c.Ingest(), c.Transcode(), c.Metadata(), c.Assemble(), c.Publish()}
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
func work[T any](do func(ctx context.Context, job *stages.Job) (T, error)) stages.Work {
	return func(ctx context.Context, job *stages.Job) (any, error) {
		result, err := do(ctx, job)
		if err != nil {
			return nil, classify(ctx, err)
		}
		return result, nil
	}
}

// Tools are the programs the stages run, and how they run them; the zero value
// takes them from PATH.
type Tools = media.Tools
