package video

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Bucket is a bucket of an S3-compatible service, or a prefix in one.
type Bucket struct{ storage *storage.Bucket }

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
	return &Bucket{b}, nil
}

// Close closes the idle connections.
func (b *Bucket) Close() { b.storage.Close() }

// String returns the address without its options.
func (b *Bucket) String() string { return b.storage.Address().String() }

// Identity returns the random id of a bucket or prefix, which the first use creates in the
// document with the given name.
func (b *Bucket) Identity(ctx context.Context, name, proposal string) (string, error) {
	content, _, err := b.storage.ReadDocument(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = b.storage.WriteDocument(ctx, name, []byte(proposal+"\n"), "")
		if err == nil {
			return proposal, nil
		}
		if errors.Is(err, storage.ErrConflict) {
			content, _, err = b.storage.ReadDocument(ctx, name)
		}
	}
	return strings.TrimSpace(string(content)), err
}

// bucketStages keep the results of stages in a bucket. DataDir is scratch space: it has the
// results that the attempts of this process need, under the same names as in the bucket.
type bucketStages struct {
	config Config

	mu      sync.Mutex // guards the rest
	users   map[store.ID]int
	trimmed time.Time // when trimIdle ran last
}

func newBucketStages(c Config) *bucketStages {
	return &bucketStages{config: c, users: make(map[store.ID]int)}
}

// over returns a stage whose result is stored in the bucket, after the results of the needed
// stages were fetched from there.
func (b *bucketStages) over(build func(Config) stages.Stage, needs ...string) stages.Stage {
	stage := build(b.config)
	stage.Work = func(ctx context.Context, job *stages.Job) (any, error) {
		defer b.use(job.Task)()
		result, err := b.attempt(ctx, job, build, needs)
		if inner, ok := err.(*classifiedError); ok {
			return nil, inner.error
		}
		if err != nil {
			return nil, classify(ctx, err, job.Attempt)
		}
		return result, nil
	}
	return stage
}

// classifiedError is an error of the stage itself, which has classified it.
type classifiedError struct{ error }

func (b *bucketStages) attempt(
	ctx context.Context, job *stages.Job, build func(Config) stages.Stage, needs []string,
) (any, error) {
	stored, err := b.list(ctx, job.Task)
	if err != nil {
		return nil, err
	}
	var used []string
	for _, need := range needs {
		dir, err := b.fetch(ctx, job, need)
		if err != nil {
			return nil, err
		}
		used = append(used, dir)
	}
	config := b.config
	config.numbers = stored
	result, err := build(config).Work(ctx, job)
	if err != nil {
		return nil, &classifiedError{err}
	}
	if dir := storedDir(result); dir != "" {
		if err := b.put(ctx, job, dir); err != nil {
			return nil, err
		}
	}
	b.deleteOlder(ctx, job.Task, stored, used)
	return result, nil
}

// storedDir is the directory of a result, relative to the task's; empty for publish.
func storedDir(result any) string {
	switch r := result.(type) {
	case Ingest:
		return filepath.Dir(r.File)
	case Transcode:
		return r.Dir
	case Metadata:
		return r.Dir
	case Assemble:
		return r.Dir
	}
	return ""
}

// use keeps the files of a task in the scratch space until the returned function was called as
// often as use, and some time longer: the next stage may run here, too.
func (b *bucketStages) use(task store.ID) (done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users[task]++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.users[task]--; b.users[task] == 0 {
			delete(b.users, task)
		}
		if time.Since(b.trimmed) > trimInterval {
			b.trimmed = time.Now()
			b.trimIdle()
		}
	}
}

const (
	// scratchAge is how long the scratch copies of a task stay after they were last used.
	scratchAge = 15 * time.Minute
	// trimInterval is the shortest time between two searches for such copies.
	trimInterval = time.Minute
)

// trimIdle removes the scratch copies of tasks that were not used for long, except unfinished
// directories and downloads, which other attempts or a Cleaner need. The lock is held.
func (b *bucketStages) trimIdle() {
	root := filepath.Join(b.config.DataDir, "tasks")
	tasks, err := os.ReadDir(root)
	if err != nil {
		return // the next call tries again
	}
	for _, e := range tasks {
		task, err := store.ParseID(e.Name())
		if err != nil || b.users[task] > 0 {
			continue
		}
		dir := filepath.Join(root, e.Name())
		entries, _ := os.ReadDir(dir) // without entries nothing is removed
		if time.Since(lastChange(dir, entries)) < scratchAge {
			continue
		}
		for _, e := range entries {
			if d, ok := parseDirName(e.Name()); ok && !d.unfinished {
				_ = os.RemoveAll(filepath.Join(dir, e.Name()))
			}
		}
		_ = os.Remove(dir) // if it is empty
	}
}

// lastChange is the latest time of a directory and its entries. Attempts of other processes touch
// theirs every minute.
func lastChange(dir string, entries []fs.DirEntry) (latest time.Time) {
	infos := make([]fs.FileInfo, 0, len(entries)+1)
	if info, err := os.Stat(dir); err == nil {
		infos = append(infos, info)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			infos = append(infos, info)
		}
	}
	for _, info := range infos {
		if info.ModTime().After(latest) {
			latest = info.ModTime()
		}
	}
	return latest
}

// artifactName is the name of a result in the bucket.
func artifactName(task store.ID, dir string) string { return path.Join("tasks", task.String(), dir) }

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
	all, err := b.config.Bucket.storage.ListArtifacts(ctx, path.Join("tasks", task.String()))
	for _, a := range all {
		if d, ok := parseDirName(path.Base(a.Name)); ok {
			names = append(names, d)
		}
	}
	return names, err
}

// fetch makes the result of a stage present in the scratch space, and returns its name.
func (b *bucketStages) fetch(ctx context.Context, job *stages.Job, stage string) (string, error) {
	var result struct {
		File string `json:"file"`
		Dir  string `json:"dir"`
	}
	raw, err := job.Results(ctx, stage)
	if err != nil {
		return "", fmt.Errorf("read result of %s: %w", stage, err)
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return "", fmt.Errorf("read result of %s: %w", stage, err)
	}
	name := result.Dir
	if stage == ingestStage {
		name = filepath.Dir(result.File)
	}
	if d, ok := parseDirName(name); !ok || d.stage != stage || d.unfinished {
		return "", fmt.Errorf("%q is not a result directory of stage %s", name, stage)
	}
	taskDir, err := b.config.makeTaskDir(job.Task)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(taskDir, name)
	if _, err := os.Stat(dir); err == nil {
		return name, touch(taskDir) // other processes of this host keep it, too
	}
	_, err = b.config.Bucket.storage.GetArtifact(ctx, artifactName(job.Task, name), dir, nil, reportTransfer(job, "downloading"))
	if errors.Is(err, fs.ErrExist) {
		err = nil // another attempt of this task has fetched it
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = &missingError{what: "the output of stage " + stage, path: b.config.Bucket.String(), err: err, oneTask: true}
	}
	return name, err
}

func (b *bucketStages) put(ctx context.Context, job *stages.Job, dir string) error {
	local := filepath.Join(b.config.TaskDir(job.Task), dir)
	_, err := b.config.Bucket.storage.PutArtifact(ctx, artifactName(job.Task, dir), local, reportTransfer(job, "storing"))
	return err
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

// deleteOlder deletes artifacts that are older than those that were used. What it cannot delete,
// a later attempt does.
func (b *bucketStages) deleteOlder(ctx context.Context, task store.ID, stored storedNames, used []string) {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	for _, name := range used {
		keep, _ := parseDirName(name)
		for _, d := range stored {
			if d.stage == keep.stage && d.number < keep.number {
				_ = b.config.Bucket.storage.DeleteArtifact(ctx, artifactName(task, d.String()))
			}
		}
	}
}
