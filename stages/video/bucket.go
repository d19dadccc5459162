package video

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Bucket is a bucket of an S3-compatible service, or a prefix in one.
type Bucket struct {
	storage *storage.Bucket

	once    sync.Once
	results *bucketResults // of all users of the bucket in this process
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

// bucketResults keeps the results of stages in a bucket.
type bucketResults struct {
	config  Config
	scratch *scratch
}

// bucketResults returns those of the process: its stages and RemoteFiles share them.
func (c Config) bucketResults() *bucketResults {
	c.Bucket.once.Do(func() {
		c.Bucket.results = &bucketResults{config: c, scratch: newScratch(c, scratchAge, c.newBlockCache())}
	})
	return c.Bucket.results
}

func (b *bucketResults) open(ctx context.Context, job *stages.Job, stage string, needs []string) (*openResults, error) {
	if stage == publishStage {
		if err := b.config.restoreAssembled(ctx, job.Task, job.Results, reportTransfer(job, "restoring")); err != nil {
			return nil, err
		}
	}
	from, err := b.fetchAll(ctx, job, needs)
	if stage != assembleStage || !isMissing(err) {
		return from, err
	}
	if restoreErr := b.config.restoreAssembled(ctx, job.Task, job.Results, reportTransfer(job, "restoring")); restoreErr != nil {
		return nil, restoreErr
	}
	if from, again := b.fetchAll(ctx, job, []string{assembleStage}); !isMissing(again) && !errors.Is(again, store.ErrNotFound) {
		return from, again
	}
	return nil, err
}

// fetchAll makes the results of stages readable.
func (b *bucketResults) fetchAll(ctx context.Context, job *stages.Job, needs []string) (*openResults, error) {
	stored, err := b.list(ctx, job.Task)
	if err != nil {
		return nil, err
	}
	from := &openResults{config: b.config, close: func() {}}
	from.config.numbers = stored
	for _, need := range needs {
		var dirs []string
		switch need {
		case ingestStage: // the only one that is needed
			dirs = make([]string, 1)
			dirs[0], from.close, err = b.openSource(ctx, job, &from.config)
		case chunkPrefix:
			dirs, err = b.fetchParts(ctx, job)
		default:
			dirs = make([]string, 1)
			dirs[0], err = b.fetch(ctx, job, need)
		}
		if err != nil {
			return nil, err
		}
		from.dirs = append(from.dirs, dirs...)
	}
	return from, nil
}

func (b *bucketResults) put(ctx context.Context, job *stages.Job, result any, from *openResults) (any, error) {
	if err := b.putResult(ctx, job, result, from.dirs); err != nil {
		return nil, err
	}
	b.deleteUnneeded(ctx, job, from.config.numbers, from.dirs)
	return result, nil
}
