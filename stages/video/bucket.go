package video

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/blockcache"
	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
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
			return nil, classify(ctx, err, job.Attempt)
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

// putResult stores the files of a result, which was made of those in used.
func (b *bucketStages) putResult(ctx context.Context, job *stages.Job, result any, used []string) error {
	dir := storedDir(result)
	switch r := result.(type) {
	case Ingest:
		return b.putSource(ctx, job, dir, r.origin)
	case Assemble: // its files are those of the stages before
		return b.put(ctx, job, dir, b.config.Bucket.artifacts(job.Task, used)...)
	case Transcode:
		if len(used) == 0 {
			return nil // the part has stored it
		}
		return b.put(ctx, job, dir, b.config.Bucket.artifacts(job.Task, used)...)
	}
	if dir == "" {
		return nil
	}
	return b.put(ctx, job, dir)
}

// storedDir is the directory of a result, relative to the task's; empty for publish.
func storedDir(result any) string {
	switch r := result.(type) {
	case Ingest:
		return filepath.Dir(r.File)
	case Chunk:
		if r.Whole != nil {
			return r.Whole.Dir
		}
		return r.Dir
	case Transcode:
		return r.Dir
	case Metadata:
		return r.Dir
	case Assemble:
		return r.Dir
	}
	return ""
}

// artifactName is the name of a result in the bucket.
func artifactName(task store.ID, dir string) string { return path.Join(tasksName, task.String(), dir) }

// storedNames are the artifacts of a task in the bucket.
type storedNames []dirName

// newest is the highest number of a stage.
func (n storedNames) newest(stage string) int {
	newest := 0
	for _, d := range n {
		if d.stage == stage {
			newest = max(newest, d.number)
		}
	}
	return newest
}

func (b *bucketStages) list(ctx context.Context, task store.ID) (names storedNames, err error) {
	all, err := b.config.Bucket.storage.ListArtifacts(ctx, path.Join(tasksName, task.String()))
	for _, a := range all {
		if d, ok := parseDirName(path.Base(a.Name)); ok {
			names = append(names, d)
		}
	}
	return names, err
}

// fetch makes the result of a stage present in the scratch space, and returns its name.
func (b *bucketStages) fetch(ctx context.Context, job *stages.Job, stage string) (string, error) {
	raw, err := job.Results(ctx, stage)
	if err != nil {
		return "", fmt.Errorf("read result of %s: %w", stage, err)
	}
	name, err := resultDir(stage, raw)
	if err != nil {
		return "", err
	}
	return name, b.fetchDir(ctx, job, stage, name)
}

// fetchParts makes the files that the join of a transcode needs present, and returns their names. Where some
// are lost, the join makes them again.
func (b *bucketStages) fetchParts(ctx context.Context, job *stages.Job) (dirs []string, err error) {
	made, err := stages.PartResults[Chunk](ctx, job)
	if err != nil {
		return nil, err
	}
	var wanted []string
	for _, chunk := range made {
		if chunk.Dir != "" || len(chunk.Only) > 0 {
			wanted = append(wanted, storedDir(chunk))
		}
	}
	if before := transcodeBefore(made); before != nil {
		wanted = append(wanted, before.Dir)
	}
	var missing error
	for _, name := range wanted {
		d, _ := parseDirName(name)
		switch err := b.fetchDir(ctx, job, d.stage, name); {
		case isMissing(err):
			missing = err
		case err != nil:
			return nil, err
		default:
			dirs = append(dirs, name)
		}
	}
	if len(dirs) == 0 {
		return nil, missing
	}
	return dirs, nil
}

// fetchDir makes a directory of a stage present in the scratch space.
func (b *bucketStages) fetchDir(ctx context.Context, job *stages.Job, stage, name string) error {
	if d, ok := parseDirName(name); !ok || d.stage != stage || d.unfinished {
		return fmt.Errorf("%q is not a result directory of stage %s", name, stage)
	}
	taskDir, err := b.config.makeTaskDir(job.Task)
	if err != nil {
		return err
	}
	dir := filepath.Join(taskDir, name)
	if _, err := os.Stat(dir); err == nil {
		return touch(taskDir) // other processes of this host keep it, too
	}
	_, err = b.config.Bucket.storage.GetArtifact(ctx, artifactName(job.Task, name), dir, nil, reportTransfer(job, "downloading"))
	if errors.Is(err, fs.ErrExist) {
		err = nil // another attempt of this task has fetched it
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = &missingError{what: "the output of stage " + stage, path: b.config.Bucket.String(), err: err, oneTask: true}
	}
	return err
}

// put stores a result. The service copies the files that are in similar artifacts, too.
func (b *bucketStages) put(ctx context.Context, job *stages.Job, dir string, similar ...storage.ArtifactRef) error {
	local := filepath.Join(b.config.TaskDir(job.Task), dir)
	_, err := b.config.Bucket.storage.PutArtifact(
		ctx, artifactName(job.Task, dir), local, reportTransfer(job, "storing"), similar...)
	return err
}

// artifacts names results of a task in the bucket.
func (b *Bucket) artifacts(task store.ID, dirs []string) (refs []storage.ArtifactRef) {
	for _, dir := range dirs {
		refs = append(refs, storage.ArtifactRef{Bucket: b.storage, Name: artifactName(task, dir)})
	}
	return refs
}

// reportTransfer reports the progress of a transfer.
func reportTransfer(job *stages.Job, note string) storage.Progress {
	return func(done, total int64) {
		job.Progress(stages.Progress{
			Percent: 99, Note: fmt.Sprintf("%s %.1f of %.1f MiB", note, float64(done)/(1<<20), float64(total)/(1<<20)),
		})
	}
}

// deleteTimeout limits the removal of what is not needed any more.
const deleteTimeout = time.Minute

// deleteUnneeded deletes artifacts that are older than those that were used, chunks that were joined, and the
// stored source of the task, of which ingest has a copy. What it cannot delete, a later attempt does.
func (b *bucketStages) deleteUnneeded(ctx context.Context, job *stages.Job, stored storedNames, used []string) {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	for _, name := range used {
		keep, _ := parseDirName(name)
		if job.Stage == transcodeStage && keep.stage != ingestStage {
			continue // the join may be repeated
		}
		b.deleteOlder(ctx, job.Task, stored, keep)
		if keep.stage == transcodeStage {
			tr, _ := stages.Result[Transcode](ctx, job, transcodeStage) // without it nothing is deleted
			b.deleteOlder(ctx, job.Task, stored, tr.afterChunks())
		}
	}
	if len(used) > 0 { // so ingest is completed
		_ = b.config.Bucket.DeleteSource(ctx, job.Source)
	}
}

// deleteOlder deletes the artifacts of a stage that are older than one of its directories.
func (b *bucketStages) deleteOlder(ctx context.Context, task store.ID, stored storedNames, keep dirName) {
	for _, d := range stored {
		if d.stage == keep.stage && d.number < keep.number {
			_ = b.config.Bucket.storage.DeleteArtifact(ctx, artifactName(task, d.String()))
		}
	}
}
