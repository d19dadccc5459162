package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/blockcache"
	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Transfer copies the files of a claim from and to the coordinator. A remote.Client is one.
type Transfer interface {
	ReadInput(ctx context.Context, token store.ID, name string, offset, length int64) ([]byte, error)
	Download(ctx context.Context, token store.ID, name, file string, progress func(done int64)) (sum string, size int64, err error)
	Upload(ctx context.Context, token store.ID, name, file string, sent func(n int64)) error
}

// RemoteStages returns the stages of a worker that does not share the directories. It works on
// the named stages, of [RemoteStageNames], and leaves the others to other workers. Config.DataDir
// is scratch space of this process: a source is there while an attempt needs it.
func RemoteStages(c Config, t Transfer, names []string) []stages.Stage {
	c = c.withCache()
	r := remoteResults{config: c, transfer: t, scratch: newScratch(c, 0, c.newBlockCache())}
	var all []stages.Stage
	for _, build := range builders {
		stage := r.scratch.withResultsIn(r, build)
		if stage.Part != nil { // others divide and join
			stage.Divide, stage.Work = nil, nil
		}
		if !slices.Contains(names, stage.Name) {
			stage.Slots = -1
		}
		all = append(all, stage)
	}
	return all
}

// RemoteStageNames are the stages that a worker without the directories can work on.
func RemoteStageNames() []string { return []string{transcodeStage, metadataStage} }

// remoteResults reads sources from a coordinator, and sends it the results of stages.
type remoteResults struct {
	config   Config
	transfer Transfer
	scratch  *scratch
}

func (s remoteResults) open(ctx context.Context, job *stages.Job, _ string, _ []string) (*openResults, error) {
	in, err := stages.Result[Ingest](ctx, job, ingestStage)
	if err != nil {
		return nil, err
	}
	from := &openResults{config: s.config, ingest: in}
	from.close, err = s.openSource(ctx, job, in, &from.config)
	return from, err
}

func (s remoteResults) put(ctx context.Context, job *stages.Job, result any, from *openResults) (any, error) {
	sent, err := s.upload(ctx, job, from.ingest, storedDir(result))
	if chunk, ok := result.(Chunk); ok && err == nil {
		chunk.Sent = sent
		return chunk, nil
	}
	return result, err
}

// openSource makes the source readable for the tools of config, until done is called: by ranges through the block
// cache, which keeps what the next chunk of the video may need, or as a whole where the tools cannot.
func (s remoteResults) openSource(ctx context.Context, job *stages.Job, in Ingest, config *Config) (done func(), err error) {
	taskDir, err := s.config.makeTaskDir(job.Task)
	if err != nil {
		return nil, err
	}
	if d, ok := parseDirName(path.Dir(filepath.ToSlash(in.File))); !ok || d.stage != ingestStage || d.unfinished {
		return nil, fmt.Errorf("%q is not the source of a task", in.File)
	}
	path := filepath.Join(taskDir, filepath.FromSlash(in.File))
	if s.config.fetchesSource(in) {
		return func() {}, s.download(ctx, job, in, taskDir, path)
	}
	name := filepath.ToSlash(in.File)
	file := s.scratch.blocks.Open(ctx, blockcache.Source{
		Name: job.Task.String() + "/" + name, Size: in.Bytes, BlockSize: storage.BlockSize,
		Fetch: func(ctx context.Context, n int64) ([]byte, error) {
			offset := n * storage.BlockSize
			return s.transfer.ReadInput(ctx, job.Token, name, offset, min(storage.BlockSize, in.Bytes-offset))
		},
	})
	config.Tools.Source = &media.ServedSource{Path: path, Input: file}
	return file.Close, nil
}

// download makes the source present at the path that it has where ingest ran.
func (s remoteResults) download(ctx context.Context, job *stages.Job, in Ingest, taskDir, file string) error {
	if err := os.MkdirAll(filepath.Dir(file), privateMode); err != nil {
		return fmt.Errorf("create directory of source: %w", err)
	}
	// Two stages of a task may need it at once.
	lock, err := os.Open(filepath.Dir(file))
	if err != nil {
		return fmt.Errorf("open directory of source: %w", err)
	}
	defer flock.Unlock(lock)
	if err := flock.Lock(ctx, lock, flock.Exclusive); err != nil {
		return err
	}
	if _, err := os.Stat(file); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := diskspace.Check(taskDir, in.Bytes, s.config.reserve()); err != nil {
		return err
	}
	return s.downloadSource(ctx, job, in, file)
}

func (s remoteResults) downloadSource(ctx context.Context, job *stages.Job, in Ingest, file string) error {
	part := file + ".part"
	sum, size, err := s.transfer.Download(ctx, job.Token, filepath.ToSlash(in.File), part, func(done int64) {
		job.Progress(stages.Progress{Percent: -1, Note: fmt.Sprintf("downloading %.1f MiB", float64(done)/(1<<20))})
	})
	if err == nil && (size != in.Bytes || sum != in.SHA256) {
		err = fmt.Errorf("the source has %d bytes with the SHA-256 %s; ingest had %d with %s", size, sum, in.Bytes, in.SHA256)
	}
	if err != nil {
		_ = os.Remove(part)
		return err
	}
	if err := os.Rename(part, file); err != nil {
		return fmt.Errorf("finish source: %w", err)
	}
	return nil
}

// upload sends the files of a result that the coordinator does not make itself, and returns their number.
func (s remoteResults) upload(ctx context.Context, job *stages.Job, in Ingest, dir string) (sent int, err error) {
	if dir == "" {
		return 0, nil
	}
	root := filepath.Join(s.config.TaskDir(job.Task), dir)
	_, bytes, err := measureTree(root, func() {})
	if err != nil {
		return 0, err
	}
	done, rungs := int64(0), in.Settings.fullLadder(in.Info)
	err = filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, file)
		name = filepath.ToSlash(name)
		isExpected := name == posterFile || media.IsSourceCaptions(in.Info, name) || media.ExpectedFile(in.Info, rungs, name)
		if err != nil || !isExpected {
			return err
		}
		sent++
		return s.transfer.Upload(ctx, job.Token, name, file, func(n int64) {
			done += n
			job.Progress(stages.Progress{
				Percent: 99, Note: fmt.Sprintf("uploading %.1f of %.1f MiB", float64(done)/(1<<20), float64(bytes)/(1<<20)),
			})
		})
	})
	return sent, err
}
