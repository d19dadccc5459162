package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// putResult stores the files of a result, which was made of those in used.
func (b *bucketResults) putResult(ctx context.Context, job *stages.Job, result any, used []string) error {
	dir := storedDir(result)
	switch r := result.(type) {
	case Ingest:
		return b.putSource(ctx, job, dir, r.origin)
	case Assemble: // its files are those of the stages before
		return b.putDir(ctx, job, dir, b.config.Bucket.artifacts(job.Task, used)...)
	case Transcode:
		if len(used) == 0 {
			return nil // the part has stored it
		}
		return b.putDir(ctx, job, dir, b.config.Bucket.artifacts(job.Task, used)...)
	}
	if dir == "" {
		return nil
	}
	return b.putDir(ctx, job, dir)
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

func (b *bucketResults) list(ctx context.Context, task store.ID) (names storedNames, err error) {
	all, err := b.config.Bucket.storage.ListArtifacts(ctx, path.Join(tasksName, task.String()))
	for _, a := range all {
		if d, ok := parseDirName(path.Base(a.Name)); ok {
			names = append(names, d)
		}
	}
	return names, err
}

// fetch makes the result of a stage present in the scratch space, and returns its name.
func (b *bucketResults) fetch(ctx context.Context, job *stages.Job, stage string) (string, error) {
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
func (b *bucketResults) fetchParts(ctx context.Context, job *stages.Job) (dirs []string, err error) {
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
func (b *bucketResults) fetchDir(ctx context.Context, job *stages.Job, stage, name string) error {
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

// putDir stores the directory of a result. The service copies the files that are in similar artifacts, too.
func (b *bucketResults) putDir(ctx context.Context, job *stages.Job, dir string, similar ...storage.ArtifactRef) error {
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
func (b *bucketResults) deleteUnneeded(ctx context.Context, job *stages.Job, stored storedNames, used []string) {
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
func (b *bucketResults) deleteOlder(ctx context.Context, task store.ID, stored storedNames, keep dirName) {
	for _, d := range stored {
		if d.stage == keep.stage && d.number < keep.number {
			_ = b.config.Bucket.storage.DeleteArtifact(ctx, artifactName(task, d.String()))
		}
	}
}

// putEarly stores the results of a first generation. A join that was repeated stores them again.
func (b *bucketResults) putEarly(ctx context.Context, job *stages.Job, tr Transcode, as Assemble) error {
	if err := b.putDir(ctx, job, tr.Dir); err != nil {
		return err
	}
	return b.putDir(ctx, job, as.Dir, b.config.Bucket.artifacts(job.Task, []string{tr.Dir})...)
}
