package video

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/blockcache"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// openSource makes the source of a job readable by the tools of config, until done is called, and
// returns the directory of ingest's result. The tools read it by ranges through the block cache, so
// that an attempt fetches only what it needs. The whole file is fetched if a result of an older
// version has no hashes of blocks, if it must be probed again, or if ffmpeg's sandbox on this host
// has no way to this process.
func (b *bucketResults) openSource(ctx context.Context, job *stages.Job, config *Config) (dir string, done func(), err error) {
	in, err := stages.Result[Ingest](ctx, job, ingestStage)
	if err != nil {
		return "", nil, err
	}
	var file *blockcache.File
	if !config.fetchesSource(in) {
		if file, err = b.openBlocks(ctx, job, in); err != nil {
			return "", nil, err
		}
	}
	if file == nil {
		dir, err = b.fetch(ctx, job, ingestStage)
		return dir, func() {}, err
	}
	taskDir, err := config.makeTaskDir(job.Task)
	if err != nil {
		file.Close()
		return "", nil, err
	}
	config.Tools.Source = &media.ServedSource{Path: filepath.Join(taskDir, in.File), Input: file}
	return filepath.Dir(in.File), file.Close, nil
}

// fetchesSource reports whether tools of this host need the whole file of a source in a bucket.
func (c Config) fetchesSource(in Ingest) bool {
	return in.Info == nil || in.Info.Version != media.InfoVersion || c.Tools.CheckServe() != nil
}

// fetchNeed is how many bytes a fetch of the whole source takes: none if it is on this host.
func (b *bucketResults) fetchNeed(task store.ID, in Ingest) int64 {
	if info, err := os.Stat(filepath.Join(b.config.TaskDir(task), filepath.Dir(in.File))); err == nil && info.IsDir() {
		return 0
	}
	return in.Bytes
}

// openBlocks opens the source of a job in the block cache. It returns nil if the whole file is on
// this host, or if there are no hashes of its blocks.
func (b *bucketResults) openBlocks(ctx context.Context, job *stages.Job, in Ingest) (*blockcache.File, error) {
	dir := filepath.Dir(in.File)
	if d, ok := parseDirName(dir); !ok || d.stage != ingestStage || d.unfinished {
		return nil, fmt.Errorf("%q is not a result directory of stage %s", dir, ingestStage)
	}
	if _, err := os.Stat(filepath.Join(b.config.TaskDir(job.Task), dir)); err == nil {
		return nil, nil
	}
	name, bucket := artifactName(job.Task, dir), b.config.Bucket.storage
	m, err := bucket.ReadManifest(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &missingError{
			what: "the output of stage " + ingestStage, path: b.config.Bucket.String(), err: err, oneTask: true,
		}
	}
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(m.Files, func(f storage.File) bool { return f.Name == filepath.Base(in.File) })
	if i < 0 || m.Files[i].BlockSums() == nil {
		return nil, nil
	}
	return b.scratch.blocks.Open(ctx, blockcache.Source{
		Name: name, Size: m.Files[i].Size, BlockSize: storage.BlockSize,
		Fetch: func(ctx context.Context, n int64) ([]byte, error) { return bucket.ReadBlock(ctx, name, m.Files[i], n) },
	}), nil
}

// seekableBlocks is a file of the block cache for one request.
type seekableBlocks struct {
	*io.SectionReader
	file *blockcache.File
}

// Close ends the reads for the file.
func (s seekableBlocks) Close() error {
	s.file.Close()
	return nil
}

type readerAt func(p []byte, offset int64) (int, error)

// ReadAt calls r.
func (r readerAt) ReadAt(p []byte, offset int64) (int, error) { return r(p, offset) }

// openInput opens the source of a claim in the bucket. It returns nil if it must be fetched.
func (b *bucketResults) openInput(ctx context.Context, job *stages.Job, in Ingest) (io.ReadSeekCloser, error) {
	file, err := b.openBlocks(ctx, job, in)
	if file == nil || err != nil {
		return nil, err
	}
	at := readerAt(func(p []byte, offset int64) (int, error) { return file.ReadAt(ctx, p, offset) })
	return seekableBlocks{io.NewSectionReader(at, 0, file.Size()), file}, nil
}
