package video

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// RemoteFiles are the files of remote workers' claims, in the directories of a Config. It
// implements remote.Files.
//
// A worker may read the source of its task, and write what transcode or metadata makes. Its files
// arrive in a working directory, which becomes a result only after the same checks as those of a
// local attempt. Nothing in the worker's result is believed that the files can show.
type RemoteFiles struct {
	// FromBucket lets workers fetch sources that are in a bucket from there, at addresses that are
	// valid for some minutes.
	FromBucket bool
	// MaxAttempts is the limit of transcode: only its last attempt may leave out renditions. Default 3.
	MaxAttempts int

	config  Config
	results func(ctx context.Context, task store.ID, stage string) (json.RawMessage, error)
	bucket  *bucketResults // nil: the results are in DataDir

	mu      sync.Mutex // guards outputs
	outputs map[store.ID]*remoteOutput
}

// remoteOutput counts what a claim has written.
type remoteOutput struct {
	used time.Time // by the lock of RemoteFiles

	mu        sync.Mutex // guards the rest, and the files: one write at a time
	bytes     int64
	accepting bool // nothing more is written
}

// NewRemoteFiles returns the files of a Config. results reads the result of a stage, as
// store.Store.Result does.
func NewRemoteFiles(
	c Config, results func(ctx context.Context, task store.ID, stage string) (json.RawMessage, error),
) *RemoteFiles {
	f := &RemoteFiles{config: c.withCache(), results: results, outputs: make(map[store.ID]*remoteOutput)}
	if c.Bucket != nil {
		f.bucket = f.config.bucketResults()
	}
	return f
}

// openSource returns the source of a task, and tools that can read it until done is called.
func (f *RemoteFiles) openSource(
	ctx context.Context, c engine.Claim, in Ingest,
) (file string, tools Tools, done func(), err error) {
	config, done := f.config, func() {}
	if f.bucket != nil {
		if _, done, err = f.bucket.openSource(ctx, f.job(c), &config); err != nil {
			return "", tools, nil, err
		}
	}
	taskDir, err := f.taskDir(c.Task)
	if err == nil {
		file, err = config.readableSource(in, taskDir)
	}
	if err != nil {
		done()
	}
	return file, config.Tools, done, err
}

// taskDir is the directory of a task's files, or of its scratch copies.
func (f *RemoteFiles) taskDir(task store.ID) (string, error) {
	if f.bucket != nil {
		return f.config.makeTaskDir(task)
	}
	return f.config.findTaskDir(task)
}

// job is a job for functions that read results.
func (f *RemoteFiles) job(c engine.Claim) *stages.Job {
	return &stages.Job{Task: c.Task, Results: func(ctx context.Context, stage string) (json.RawMessage, error) {
		return f.results(ctx, c.Task, stage)
	}}
}

func refused(format string, args ...any) error {
	return &remote.RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// ingest returns the result of a task's ingest stage.
func (f *RemoteFiles) ingest(ctx context.Context, task store.ID) (in Ingest, err error) {
	raw, err := f.results(ctx, task, ingestStage)
	if err == nil {
		err = json.Unmarshal(raw, &in)
	}
	if err == nil && in.Info == nil {
		err = errors.New("it has no description of the source")
	}
	if err != nil {
		return in, fmt.Errorf("read result of %s: %w", ingestStage, err)
	}
	return in, nil
}

// input returns the result of ingest if its file has the name, which is all that a worker may read.
func (f *RemoteFiles) input(ctx context.Context, c engine.Claim, name string) (Ingest, error) {
	if _, err := f.delivery(ctx, c); err != nil {
		return Ingest{}, err
	}
	in, err := f.ingest(ctx, c.Task)
	if err == nil && name != filepath.ToSlash(in.File) {
		err = fs.ErrNotExist
	}
	return in, err
}

// OpenInput opens the source of the claim's task.
func (f *RemoteFiles) OpenInput(ctx context.Context, c engine.Claim, name string) (io.ReadSeekCloser, error) {
	in, err := f.input(ctx, c, name)
	if err != nil {
		return nil, err
	}
	if f.bucket != nil {
		if input, err := f.bucket.openInput(ctx, f.job(c), in); input != nil || err != nil {
			return input, err
		}
		done, err := f.bucket.scratch.use(c.Task, f.bucket.fetchNeed(c.Task, in))
		if err != nil {
			return nil, err
		}
		defer done() // an open file can be read to its end
		if _, err := f.bucket.fetch(ctx, f.job(c), ingestStage); err != nil {
			return nil, err
		}
	}
	taskDir, err := f.taskDir(c.Task)
	if err != nil {
		return nil, err
	}
	file, err := in.source(taskDir)
	if err != nil {
		return nil, err
	}
	return os.Open(file)
}

// presignLife is how long the address of an input is valid. A worker gets a new one with every
// request.
const presignLife = 15 * time.Minute

// InputAddress returns an address of the source of the claim's task in the bucket.
func (f *RemoteFiles) InputAddress(ctx context.Context, c engine.Claim, name string) (string, error) {
	if f.bucket == nil || !f.FromBucket {
		return "", nil
	}
	in, err := f.input(ctx, c, name)
	if err != nil {
		return "", err
	}
	dir, file := filepath.Split(in.File)
	return f.config.Bucket.storage.PresignFile(ctx, artifactName(c.Task, dir), file, presignLife)
}
