package video

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/blockcache"
	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages"
)

// Bucket is a bucket of an S3-compatible service, or a prefix in one.
type Bucket struct {
	storage *storage.Bucket

	once   sync.Once
	stages *bucketStages // of all users of the bucket in this process
}

// IsBucketAddress reports whether text is the address of a bucket and not the path of a directory.
func IsBucketAddress(text string) bool { return storage.IsAddress(text) }

// OpenBucket returns the bucket at an address: s3://BUCKET/PREFIX?OPTIONS, as docs/storage.md
// describes. getenv returns the value of a variable, as os.Getenv does. It does not connect.
func OpenBucket(address string, getenv func(string) string) (*Bucket, error) {
	parsed, err := storage.ParseAddress(address, getenv)
	if err != nil {
		return nil, err
	}
	b, err := storage.Open(parsed, storage.Options{})
	if err != nil {
		return nil, err
	}
	return &Bucket{storage: b}, nil
}

// Close closes the idle connections.
func (b *Bucket) Close() { b.storage.Close() }

// String returns the address without its options.
func (b *Bucket) String() string { return b.storage.Address().String() }

// Open opens a file for reading by ranges, and returns when it was stored and its version. It returns
// fs.ErrNotExist if there is none. Reading ends with ctx.
func (b *Bucket) Open(ctx context.Context, name string) (f io.ReadSeekCloser, modified time.Time, version string, err error) {
	o, err := b.storage.Open(ctx, name)
	if err != nil {
		return nil, time.Time{}, "", err
	}
	return o, o.Modified, o.ETag, nil
}

// bucketStages keep the results of stages in a bucket. DataDir has scratch space: it has the
// results that the attempts of this process need, under the same names as in the bucket.
type bucketStages struct {
	config  Config
	blocks  *blockcache.Cache // of sources
	scratch *scratch
}

// bucketStages returns those of the process: its stages and RemoteFiles share them.
func (c Config) bucketStages() *bucketStages {
	c.Bucket.once.Do(func() {
		blocks := blockcache.New(c.DataDir, c.blockCacheLimit(), func(dir string, bytes int64) error {
			return diskspace.Check(dir, bytes, c.reserve())
		})
		c.Bucket.stages = &bucketStages{config: c, blocks: blocks, scratch: newScratch(c, scratchAge, blocks)}
	})
	return c.Bucket.stages
}

// blockCacheLimit is how many bytes of sources the block cache keeps.
func (c Config) blockCacheLimit() int64 {
	const most = 8 << 30
	if c.ScratchLimit > 0 {
		return min(most, c.ScratchLimit/4)
	}
	return most
}

// over returns a stage whose result is stored in the bucket, after the results of the needed
// stages were fetched from there.
func (b *bucketStages) over(build func(Config) stages.Stage, needs ...string) stages.Stage {
	stage := build(b.config)
	if stage.Part != nil { // its Work joins the parts
		stage.Part = b.work(stage.Name, func(c Config) stages.Work { return build(c).Part }, needs)
		needs = []string{chunkPrefix}
	}
	stage.Work = b.work(stage.Name, func(c Config) stages.Work { return build(c).Work }, needs)
	return stage
}

func (b *bucketStages) work(stage string, build func(Config) stages.Work, needs []string) stages.Work {
	return func(ctx context.Context, job *stages.Job) (any, error) {
		result, err := b.attempt(ctx, job, stage, build, needs)
		if inner, ok := err.(*classifiedError); ok {
			return nil, inner.error
		}
		if err != nil {
			return nil, b.config.classify(ctx, err, job.Attempt)
		}
		return result, nil
	}
}

// classifiedError is an error of the stage itself, which has classified it.
type classifiedError struct{ error }

func (b *bucketStages) attempt(
	ctx context.Context, job *stages.Job, stage string, build func(Config) stages.Work, needs []string,
) (any, error) {
	need, err := b.config.scratchNeed(ctx, job, stage)
	if err != nil {
		return nil, err
	}
	done, err := b.scratch.use(job.Task, need)
	if err != nil {
		return nil, err
	}
	defer done()
	stored, err := b.list(ctx, job.Task)
	if err != nil {
		return nil, err
	}
	if stage == publishStage {
		if err := b.config.restoreAssembled(ctx, job.Task, job.Results, reportTransfer(job, "restoring")); err != nil {
			return nil, err
		}
	}
	config := b.config
	config.numbers = stored
	var used []string
	for _, need := range needs {
		var dirs []string
		done := func() {}
		switch need {
		case ingestStage:
			dirs = make([]string, 1)
			dirs[0], done, err = b.openSource(ctx, job, &config)
		case chunkPrefix:
			dirs, err = b.fetchParts(ctx, job)
		default:
			dirs = make([]string, 1)
			dirs[0], err = b.fetch(ctx, job, need)
		}
		if err != nil {
			return nil, err
		}
		defer done()
		used = append(used, dirs...)
	}
	result, err := build(config)(ctx, job)
	if err != nil {
		return nil, &classifiedError{err}
	}
	if err := b.putResult(ctx, job, result, used); err != nil {
		return nil, err
	}
	b.deleteUnneeded(ctx, job, stored, used)
	return result, nil
}
