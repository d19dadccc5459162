package video

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/internal/media"
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
	config  Config
	results func(ctx context.Context, task store.ID, stage string) (json.RawMessage, error)

	mu      sync.Mutex // guards outputs
	outputs map[store.ID]*remoteOutput
}

// remoteOutput counts what a claim has written.
type remoteOutput struct {
	mu    sync.Mutex // one write at a time
	files int
	bytes int64
}

// NewRemoteFiles returns the files of a Config. results reads the result of a stage, as
// store.Store.Result does.
func NewRemoteFiles(
	c Config, results func(ctx context.Context, task store.ID, stage string) (json.RawMessage, error),
) *RemoteFiles {
	return &RemoteFiles{config: c.withCache(), results: results, outputs: make(map[store.ID]*remoteOutput)}
}

func refused(format string, args ...any) error {
	return &remote.RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// stageName returns the name of a claim's stage, if remote workers may do it.
func stageName(c engine.Claim) (string, error) {
	switch name := store.Video().Stages()[c.Stage]; name {
	case transcodeStage, metadataStage:
		return name, nil
	default:
		return "", refused("stage %s has no files for remote workers", name)
	}
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

// OpenInput opens the source of the claim's task.
func (f *RemoteFiles) OpenInput(ctx context.Context, c engine.Claim, name string) (io.ReadSeekCloser, error) {
	if _, err := stageName(c); err != nil {
		return nil, err
	}
	in, err := f.ingest(ctx, c.Task)
	if err != nil {
		return nil, err
	}
	if name != filepath.ToSlash(in.File) {
		return nil, fs.ErrNotExist
	}
	taskDir, err := f.config.findTaskDir(c.Task)
	if err != nil {
		return nil, err
	}
	file, err := in.source(taskDir)
	if err != nil {
		return nil, err
	}
	return os.Open(file)
}

// outputName matches the names that transcode and metadata give to their files: in the directory
// itself, or in one below it.
var outputName = regexp.MustCompile(`^([a-z0-9][a-z0-9_-]{0,63}/)?[a-z0-9][a-z0-9_.-]{0,63}$`)

// maxOutputFiles is the largest number of files of one attempt: a week of segments in ten renditions.
const maxOutputFiles = 1_100_000

// checkOutputName refuses names that the stage does not make.
func checkOutputName(stage, name string) error {
	switch {
	case !outputName.MatchString(name) || strings.HasSuffix(name, ".tmp"):
		return refused("%q is not the name of a file of stage %s", name, stage)
	case stage == metadataStage && name != posterFile && name != metadataFile:
		return refused("%q is not the name of a file of stage %s", name, stage)
	}
	return nil
}

// receiving returns the directory in which a claim's files arrive. Its name follows from the
// token, so that every coordinator on these directories finds it.
func (f *RemoteFiles) receiving(c engine.Claim, stage string) (*workdir, error) {
	taskDir, err := f.config.findTaskDir(c.Task)
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256([]byte(c.Token.String()))
	random := strings.ToLower(base32.StdEncoding.EncodeToString(digest[:]))[:10]
	w := &workdir{parent: taskDir, mode: privateMode, dirName: dirName{
		stage: stage, number: min(max(c.Attempt, 1), 9999), random: random, unfinished: true,
	}}
	w.path = filepath.Join(taskDir, w.String())
	return w, nil
}

// OutputSize returns how much of a file has arrived.
func (f *RemoteFiles) OutputSize(_ context.Context, c engine.Claim, name string) (int64, error) {
	stage, err := stageName(c)
	if err == nil {
		err = checkOutputName(stage, name)
	}
	if err != nil {
		return 0, err
	}
	w, err := f.receiving(c, stage)
	if err != nil {
		return 0, err
	}
	info, err := os.Lstat(filepath.Join(w.path, filepath.FromSlash(name)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case !info.Mode().IsRegular():
		return 0, refused("%q is not a file", name)
	}
	return info.Size(), nil
}

// WriteOutput appends to a file of the claim.
func (f *RemoteFiles) WriteOutput(
	ctx context.Context, c engine.Claim, name string, at, total int64, sum string, from io.Reader,
) error {
	stage, err := stageName(c)
	if err == nil {
		err = checkOutputName(stage, name)
	}
	if err != nil {
		return err
	}
	w, err := f.receiving(c, stage)
	if err != nil {
		return err
	}
	out, err := f.output(w, c)
	if err != nil {
		return err
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	limit, err := f.outputLimit(ctx, c, stage)
	switch {
	case err != nil:
		return err
	case out.bytes-at+total > limit:
		return refused("the files of stage %s may have %d bytes in all", stage, limit)
	case at == 0 && out.files >= maxOutputFiles:
		return refused("the files of stage %s may be %d", stage, maxOutputFiles)
	}
	if err := diskspace.Check(w.parent, total-at, f.config.reserve()); err != nil {
		return err
	}
	return f.append(w, out, name, at, total, sum, from)
}

// output returns the counters of a claim, which it makes from the files that are there.
func (f *RemoteFiles) output(w *workdir, c engine.Claim) (*remoteOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if out := f.outputs[c.Token]; out != nil {
		return out, nil
	}
	if err := os.Mkdir(w.path, w.mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create working directory: %w", err)
	}
	files, bytes, err := measureTree(w.path, func() {})
	if err != nil {
		return nil, err
	}
	out := &remoteOutput{files: files, bytes: bytes}
	f.outputs[c.Token] = out
	return out, nil
}

// outputLimit is how many bytes a stage may write: twice what its ladder allows, for containers
// and pictures.
func (f *RemoteFiles) outputLimit(ctx context.Context, c engine.Claim, stage string) (int64, error) {
	const pictures = 256 << 20
	if stage == metadataStage {
		return pictures, nil
	}
	in, err := f.ingest(ctx, c.Task)
	if err != nil {
		return 0, err
	}
	return 2*estimateSize(in.Info, media.Ladder(in.Info)) + pictures, nil
}

// append writes a piece of a file. The file is complete only if its SHA-256 is right.
func (f *RemoteFiles) append(w *workdir, out *remoteOutput, name string, at, total int64, sum string, from io.Reader) error {
	root, err := os.OpenRoot(w.path)
	if err != nil {
		return fmt.Errorf("open working directory: %w", err)
	}
	defer root.Close()
	if dir := path.Dir(name); dir != "." {
		if err := root.Mkdir(dir, w.mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("create directory: %w", err)
		}
	}
	file, err := root.OpenFile(filepath.FromSlash(name), os.O_RDWR|os.O_CREATE|os.O_APPEND, servedFileMode)
	if err != nil {
		return fmt.Errorf("open output: %w", err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Size() != at {
		return fmt.Errorf("another request writes %q", name)
	}
	n, err := io.Copy(file, from)
	out.bytes += n
	if at == 0 {
		out.files++
	}
	if err == nil && at+n == total && sum != "" {
		err = checkSum(file, sum)
		if err != nil {
			out.bytes -= total
			out.files--
			err = errors.Join(err, root.Remove(filepath.FromSlash(name)))
		}
	}
	return errors.Join(err, file.Close())
}

func checkSum(file *os.File, sum string) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return err
	}
	if got := hex.EncodeToString(digest.Sum(nil)); !strings.EqualFold(got, sum) {
		return refused("%s arrived with the SHA-256 %s instead of %s; send it again", filepath.Base(file.Name()), got, sum)
	}
	return nil
}

// Accept checks the files of a claim and makes them the result of its stage.
func (f *RemoteFiles) Accept(ctx context.Context, c engine.Claim, result json.RawMessage) (json.RawMessage, error) {
	stage, err := stageName(c)
	if err != nil {
		return nil, err
	}
	w, err := f.receiving(c, stage)
	if err != nil {
		return nil, err
	}
	in, err := f.ingest(ctx, c.Task)
	if err != nil {
		return nil, err
	}
	if err := f.findAccepted(w); err != nil {
		return nil, err
	}
	var accepted any
	if stage == transcodeStage {
		accepted, err = f.acceptTranscode(ctx, w, in, result)
	} else {
		accepted, err = f.acceptMetadata(ctx, w, in, result)
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	delete(f.outputs, c.Token)
	f.mu.Unlock()
	return json.Marshal(accepted)
}

// findAccepted finds the directory of an earlier Accept, whose answer was lost.
func (f *RemoteFiles) findAccepted(w *workdir) error {
	names, err := dirNames(w.parent, w.stage)
	if err != nil {
		return err
	}
	for _, d := range names {
		if d.random == w.random && !d.unfinished {
			w.dirName, w.path = d, filepath.Join(w.parent, d.String())
			return nil
		}
	}
	if _, err := os.Stat(w.path); errors.Is(err, fs.ErrNotExist) {
		return refused("no file has arrived")
	} else if err != nil {
		return err
	}
	return nil
}

func (f *RemoteFiles) acceptTranscode(ctx context.Context, w *workdir, in Ingest, result json.RawMessage) (Transcode, error) {
	tr := Transcode{Rungs: media.Ladder(in.Info)}
	var claimed Transcode
	if err := json.Unmarshal(result, &claimed); err != nil || claimed.Output == nil {
		return tr, refused("the result of stage %s is invalid", transcodeStage)
	}
	tr.Output, tr.Warnings = claimed.Output, claimed.Output.Warnings
	job := &stages.Job{}
	err := f.config.tools(job, -1, "checking").Check(ctx, in.Info, w.path, tr.Output)
	switch {
	case errors.Is(err, media.ErrMismatch) && !isHostError(err):
		return tr, refused("%v", err)
	case err != nil:
		return tr, err
	}
	tr.Dir, err = f.finish(ctx, w, job)
	return tr, err
}

func (f *RemoteFiles) acceptMetadata(ctx context.Context, w *workdir, in Ingest, result json.RawMessage) (Metadata, error) {
	var claimed Metadata
	if err := json.Unmarshal(result, &claimed); err != nil {
		return Metadata{}, refused("the result of stage %s is invalid", metadataStage)
	}
	md := Metadata{Description: Description{Info: in.Info, Warnings: claimed.Warnings}}
	if claimed.Poster != "" {
		md.Poster = posterFile
		if info, err := os.Lstat(filepath.Join(w.path, posterFile)); err != nil || !info.Mode().IsRegular() {
			return md, refused("the poster has not arrived")
		}
	}
	if w.unfinished {
		if err := os.Remove(filepath.Join(w.path, metadataFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return md, err
		}
		if err := md.write(w.path); err != nil {
			return md, err
		}
	}
	var err error
	md.Dir, err = f.finish(ctx, w, &stages.Job{})
	return md, err
}

// finish gives a checked directory its final name.
func (f *RemoteFiles) finish(ctx context.Context, w *workdir, job *stages.Job) (string, error) {
	if !w.unfinished {
		return w.String(), nil
	}
	if err := w.sync(ctx, job); err != nil {
		return "", err
	}
	lock, err := lockDir(ctx, w.parent)
	if err != nil {
		return "", err
	}
	defer flock.Unlock(lock)
	names, err := dirNames(w.parent, w.stage)
	if err != nil {
		return "", err
	}
	for _, d := range names {
		if d.random != w.random {
			w.number = max(w.number, d.number+1)
		}
	}
	if err := w.rename(); err != nil {
		return "", err
	}
	return w.String(), nil
}
