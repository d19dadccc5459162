package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	chunkPrefix    = "chunk" // of the directories of transcode's parts
	metadataStage  = "metadata"
	assembleStage  = "assemble"
	publishStage   = "publish"
)

// Config says where the stages work and within which limits. DataDir and
// PublishDir are required; every other field has a useful zero value.
type Config struct {
	// DataDir holds sources and intermediate files. It must exist: a missing
	// directory counts as an unmounted disk, and is not created.
	DataDir string

	// PublishDir holds what players are served. It must exist. If it is on the
	// same file system as DataDir, publishing takes no space and little time.
	PublishDir string

	// Captions returns the captions that were attached to a task; assemble adds them to those of the source. Default: none.
	Captions func(ctx context.Context, task store.ID) ([]AttachedCaptions, error)

	// EncryptionKeys returns the keys of a task's video, whose settings ask for encryption: the newest first, and those with which it
	// may be encrypted already. Hosts that share tasks have the same ones; remote workers need none. Default: such a video fails.
	EncryptionKeys func(task store.ID) ([][16]byte, error)

	// EncryptionKeyURL is the address from which players get the key: {id} stands for the task, and the query key=ID of the key is
	// added. Default: next to the published files, where the web server answers.
	EncryptionKeyURL string

	// Bucket keeps the results of the stages, instead of DataDir, which then has scratch space of
	// this process. Hosts with the same Bucket and PublishBucket work on the same tasks and share no
	// directory; a source must be a URL, what Bucket.StoreSource returned, or a file that every host
	// with ingest has. All Configs with one Bucket must be the same. Default: DataDir keeps them.
	Bucket *Bucket

	// PublishBucket holds what players are served, instead of PublishDir. Default: PublishDir does.
	PublishBucket *Bucket

	// Tools are ffmpeg and ffprobe. Default: those in PATH.
	Tools Tools

	// Slots is how many tasks one process works on at once, per stage.
	Slots Slots

	// AllowNetworks lists non-public networks to download from. Default none: an
	// http(s) source must have a public address, also after every redirect.
	AllowNetworks []netip.Prefix

	// MaxDownload is the largest download, in bytes. Default 100 GiB.
	MaxDownload int64

	// DownloadTimeout limits a download in one attempt. The next attempt
	// continues it if the server supports that. Default 12 h.
	DownloadTimeout time.Duration

	// ChunkLength is how much of a video one part of the transcode makes, in whole segments of 6 s. Default 30 s;
	// negative: no transcode is divided. Ingest decides, and docs/architecture.md says what cannot be divided.
	ChunkLength time.Duration

	// MinDivided is the shortest video whose transcode is divided. It is never less than two chunks.
	MinDivided time.Duration

	// LinkSources allows hard links to local sources instead of copies if the
	// file system has no reflinks. Set it only if sources are never modified
	// after submission; replacing one by rename is safe.
	LinkSources bool

	// Reserve is how many bytes stay free on either disk. Default 1 GiB;
	// negative: none.
	Reserve int64

	// ScratchLimit is how many bytes DataDir may have where it is scratch space: files of running
	// attempts, copies that nobody uses any more, which make room for others, and for a quarter of it,
	// but at most 8 GiB, blocks of sources. An attempt that may need more waits. Default: what Reserve leaves of the disk.
	ScratchLimit int64

	// KeepOld is how long a replaced generation stays for current viewers, plus
	// an hour in case clocks are wrong. A Cleaner, or the next publish of the
	// task, removes it. Default 24 h; negative: not at all.
	KeepOld time.Duration

	// KeepSourceCopies is how long a task's copy of its source, and all else in DataDir or Bucket, stays after the
	// task was completed. A Cleaner with Completed removes them; the video stays published. Afterwards the task can
	// be retried from publish, and else only from ingest, if the source still exists: of an upload there is only this copy.
	// Default 0: for ever.
	KeepSourceCopies time.Duration

	// Marker names a file that exists in DataDir and PublishDir while their
	// disks are mounted. If it is missing, nothing is written; otherwise the
	// directory below a mount point could be mistaken for the disk. Default "":
	// the directories need only exist.
	Marker string

	// Stall is how long an attempt may make no progress before it is cancelled
	// and fails. Progress is a byte fetched, a packet read, a frame made, a file
	// checked, linked or synced, and an active ffmpeg as defined by Tools.Stall,
	// which includes one that waits for a processor. Default five times
	// Tools.Stall, but at least 10 min; negative, or if Tools.Stall is negative:
	// no limit.
	Stall time.Duration

	numbers storedNames // of the task's directories in Bucket; new ones have higher numbers
}

// Slots is how many tasks one process works on at once in each stage. Zero
// means the default.
type Slots struct {
	Ingest    int // default 4: it waits for disks and networks
	Transcode int // default 1: one ffmpeg uses all cores
	Metadata  int // default 2
	Assemble  int // default 2
	Publish   int // default 2
}

// Tools are the programs that the stages run; the zero value takes them from
// PATH.
type Tools = media.Tools

const (
	defaultReserve = 1 << 30
	defaultKeepOld = 24 * time.Hour
	defaultStall   = 10 * time.Minute
)

// Stages returns the five stages of the built-in pipeline.
func Stages(c Config) []stages.Stage {
	c = c.withCache()
	if c.Bucket != nil {
		return overBucket(c)
	}
	var all []stages.Stage
	for _, build := range builders {
		all = append(all, build(c))
	}
	return all
}

// builders build the stages of the built-in pipeline.
var builders = []func(Config) stages.Stage{
	Config.Ingest, Config.Transcode, Config.Metadata, Config.Assemble, Config.Publish,
}

// Pipeline returns the built-in pipeline of the given stages, usually those of
// [Stages], on the tables of [store.Video].
func Pipeline(all ...stages.Stage) (*stages.Pipeline, error) {
	p, err := stages.New(store.Video().Name(), all...)
	if err != nil {
		return nil, err
	}
	return p.WithTablePrefix(store.Video().TablePrefix())
}

// withCache makes the stages query ffmpeg's capabilities only once.
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

// work makes a stage's Work of a function and classifies its errors. The stage
// works in the data directory, and perhaps in others.
func work[T any](c Config, do func(ctx context.Context, job *stages.Job) (T, error), dirs ...rootDir) stages.Work {
	dirs = append([]rootDir{{"data", c.DataDir}}, dirs...)
	return func(ctx context.Context, job *stages.Job) (any, error) {
		job, lastNote := withLastNote(job)
		result, err := do(ctx, job)
		switch {
		case err == nil:
			return result, nil
		case errors.Is(context.Cause(ctx), stages.ErrStalled):
			return nil, fmt.Errorf("the last reported step is %q; check the disks and the network of this host", lastNote())
		}
		return nil, c.classify(ctx, c.preferMissingRoot(err, dirs), job.Attempt)
	}
}

// rootDir is DataDir or PublishDir.
type rootDir struct{ name, path string }

// preferMissingRoot returns the error of a missing root directory, if one is
// missing, because that explains every other error.
func (c Config) preferMissingRoot(err error, dirs []rootDir) error {
	if isMissing(err) {
		return err
	}
	for _, dir := range dirs {
		if rootErr := c.checkRoot(dir.name, dir.path); isMissing(rootErr) {
			return fmt.Errorf("%w (%v)", rootErr, err)
		}
	}
	return err
}

// inWorkdir creates a working directory for an attempt of stage in the task's
// directory, lets fill make the stage's files in it, and finishes it. It returns
// the directory's final name. If anything fails, the directory is removed.
func (c Config) inWorkdir(
	ctx context.Context, job *stages.Job, taskDir, stage string, mode fs.FileMode,
	fill func(job *stages.Job, dir string) error,
) (name string, err error) {
	w, err := newWorkdir(ctx, job, taskDir, stage, c.numbers.newest(stage)+1, mode)
	if err != nil {
		return "", err
	}
	defer w.discard()
	job = w.withTouch(job)
	if err := fill(job, w.path); err != nil {
		return "", err
	}
	return w.finish(ctx, job)
}
