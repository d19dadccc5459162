package video

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image/jpeg"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// maxPosterBytes is far above a poster's size.
const maxPosterBytes = 16 << 20

// Accept checks the files of a claim and makes them the result of its stage.
func (f *RemoteFiles) Accept(ctx context.Context, c engine.Claim, result json.RawMessage) (json.RawMessage, error) {
	d, err := f.delivery(ctx, c)
	if err != nil {
		return nil, err
	}
	w, err := f.receiving(c, d.name)
	if err != nil {
		return nil, err
	}
	receiving := w.path
	if before, err := acceptedBefore(receiving); before != nil || err != nil {
		return before, err
	}
	if f.bucket != nil {
		done, err := f.bucket.scratch.use(c.Task, f.acceptNeed(c.Task, d, receiving))
		if err != nil {
			return nil, err
		}
		defer done()
	}
	lock, before, err := f.lockOutput(ctx, c, w)
	if before != nil || err != nil {
		return before, err
	}
	defer flock.Unlock(lock)
	accepted, err := f.accept(ctx, c, w, d, result)
	_, isRefused := errors.AsType[*remote.RefusedError](err)
	if err != nil && !isRefused && !errors.Is(err, remote.ErrOutputsElsewhere) {
		return nil, err
	}
	f.mu.Lock()
	delete(f.outputs, c.Token)
	f.mu.Unlock()
	if err != nil {
		_ = os.RemoveAll(w.path) // a Cleaner removes the rest
		return nil, err
	}
	if result, err = json.Marshal(accepted); err != nil {
		return nil, err
	}
	return result, recordAccepted(receiving, result)
}

// lockOutput locks the directory in which a claim's files have arrived, to which nothing is written from
// then on. It returns the result if another coordinator has accepted them while this waited.
func (f *RemoteFiles) lockOutput(ctx context.Context, c engine.Claim, w *workdir) (lock *os.File, before json.RawMessage, err error) {
	out, err := f.output(w, c)
	if err != nil {
		return nil, nil, err
	}
	out.mu.Lock()
	out.accepting = true
	out.mu.Unlock()
	receiving := w.path
	lock, err = lockToAccept(ctx, w)
	if errors.Is(err, errComplete) {
		if before, err := acceptedBefore(receiving); before != nil || err != nil {
			return nil, before, err
		}
	}
	if err != nil { // not a refusal: the next call finds the result
		return nil, nil, fmt.Errorf("lock received files: %v", err)
	}
	return lock, nil, nil
}

// accept checks the files in the directory in which they have arrived.
func (f *RemoteFiles) accept(ctx context.Context, c engine.Claim, w *workdir, d delivery, result json.RawMessage) (any, error) {
	// Coordinators with one bucket may be on different hosts, and each has what it received.
	if f.bucket != nil {
		if err := d.checkArrived(w.path, result); err != nil {
			return nil, err
		}
	}
	if d.isMetadata() {
		return f.acceptMetadata(ctx, c, w, d, result)
	}
	return f.acceptChunk(ctx, c, w, d, result)
}

// checkArrived returns remote.ErrOutputsElsewhere if fewer files have arrived than the result says. A
// metadata stage may deliver none, and neither does a part that says that the source cannot be divided.
func (d delivery) checkArrived(dir string, result json.RawMessage) error {
	var claimed struct {
		Poster      string           `json:"poster"`
		Captions    []media.Captions `json:"captions"`
		Sent        int              `json:"sent"`
		Indivisible string           `json:"indivisible"`
	}
	_ = json.Unmarshal(result, &claimed) // the check of the files refuses it
	if d.isMetadata() {
		var names []string
		if claimed.Poster != "" {
			names = append(names, posterFile)
		}
		for _, c := range claimed.Captions {
			names = append(names, c.Dir+"/"+media.CaptionsFile)
		}
		for _, name := range names {
			_, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name)))
			if d.maxBytes(name) > 0 && errors.Is(err, fs.ErrNotExist) {
				return remote.ErrOutputsElsewhere
			}
		}
		return nil
	}
	arrived := 0
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if d.maxBytes(filepath.ToSlash(name)) > 0 {
			arrived++
		}
		return err
	})
	if err == nil && arrived < max(claimed.Sent, 1) && claimed.Indivisible == "" {
		err = remote.ErrOutputsElsewhere
	}
	return err
}

// acceptNeed is how many bytes a check may need, with those that have arrived: it fetches the source if it
// cannot read it by ranges.
func (f *RemoteFiles) acceptNeed(task store.ID, d delivery, receiving string) int64 {
	if d.isMetadata() || !f.config.fetchesSource(d.in) {
		return 0
	}
	need := f.bucket.fetchNeed(task, d.in)
	if need > 0 {
		_, arrived, _ := measureTree(receiving, func() {}) // it takes the room already, and is of the same task
		need += arrived
	}
	return need
}

// maxReason is the longest reason of a worker why a source cannot be divided or a rendition not be made, in bytes.
const maxReason = 500

func limitReason(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

// skippedRenditions returns those renditions that a worker says it could not make and that may be left out: never all,
// and none before the last attempt.
func (d delivery) skippedRenditions(claimed []FailedRendition) (failed []FailedRendition) {
	if !d.isLast || d.in.Settings.FailedRendition != failedIsSkipped {
		return nil
	}
	left := 0
	for _, r := range d.rungs {
		i := slices.IndexFunc(claimed, func(f FailedRendition) bool { return f.Name == r.Name })
		switch {
		case r.IsAudio(), r.Copied && !d.isWhole():
		case i < 0:
			left++
		default:
			failed = append(failed, FailedRendition{r.Name, limitReason(claimed[i].Error)})
		}
	}
	if left == 0 {
		return nil
	}
	return failed
}

// acceptChunk checks the files of a part of a transcode.
func (f *RemoteFiles) acceptChunk(
	ctx context.Context, c engine.Claim, w *workdir, d delivery, result json.RawMessage,
) (made Chunk, err error) {
	var claimed Chunk
	if err := json.Unmarshal(result, &claimed); err != nil {
		return made, refused("the result of stage %s is invalid", transcodeStage)
	}
	if why := claimed.Indivisible; why != "" && !d.isWhole() {
		return Chunk{Only: d.spec.Only, Before: d.spec.Before, Indivisible: limitReason(why)}, os.RemoveAll(w.path)
	}
	made.Only, made.Before = d.spec.Only, d.spec.Before
	source, tools, done, err := f.openSource(ctx, c, d.in)
	if err != nil {
		return made, err
	}
	defer done()
	if err := d.removeUnexpected(w.path); err != nil {
		return made, err
	}
	if d.isWhole() {
		if claimed.Whole == nil {
			claimed.Whole = &Transcode{}
		}
		tr := &Transcode{Rungs: d.rungs, Undivided: d.spec.Reason}
		tr.setFailed(d.skippedRenditions(claimed.Whole.Failed))
		if tr.Output, err = tools.CheckDelivered(ctx, source, d.in.Info, tr.Rungs, w.path, claimed.Whole.Output); err != nil {
			return made, refusal(err)
		}
		tr.Warnings, made.Whole = tr.warnings(), tr
		tr.Dir, err = f.finish(ctx, c, w)
		return made, err
	}
	made.Failed = d.skippedRenditions(claimed.Failed)
	made.Output, err = tools.CheckDeliveredChunk(
		ctx, source, d.in.Info, withoutFailed(d.rungs, made.Failed), d.in.Chunks, d.spec.piece(), w.path, claimed.Output)
	if err != nil {
		return made, refusal(err)
	}
	made.Dir, err = f.finish(ctx, c, w)
	return made, err
}

// refusal turns what the check of a worker's files found wrong into a remote.RefusedError.
func refusal(err error) error {
	if wrong, ok := errors.AsType[*media.RefusedError](err); ok {
		return refused("%v", wrong)
	}
	if rejected, ok := errors.AsType[*media.RejectedError](err); ok {
		return &remote.RefusedError{Reason: rejected.Error(), IsTask: true}
	}
	return err
}

// removeUnexpected removes what an earlier check has written. A check that was killed leaves directories, whose names
// begin with a dot.
func (d delivery) removeUnexpected(dir string) error {
	return filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && e.Name()[0] == '.' {
			return cmp.Or(os.RemoveAll(file), fs.SkipDir)
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil || d.maxBytes(filepath.ToSlash(name)) > 0 {
			return err
		}
		return os.Remove(file)
	})
}

// acceptMetadata describes the source as ingest measured it. Of the worker it takes the poster.
func (f *RemoteFiles) acceptMetadata(
	ctx context.Context, c engine.Claim, w *workdir, d delivery, result json.RawMessage,
) (Metadata, error) {
	var claimed Metadata
	if err := json.Unmarshal(result, &claimed); err != nil {
		return Metadata{}, refused("the result of stage %s is invalid", metadataStage)
	}
	in := d.in
	md := Metadata{Description: Description{Info: in.Info}}
	switch err := f.acceptPoster(ctx, filepath.Join(w.path, posterFile), in.Info); {
	case err == nil:
		md.Poster = posterFile
	case errors.Is(err, fs.ErrNotExist):
		if in.Info.Video != nil {
			md.Warnings = []string{"there is no poster"}
		}
	default:
		return md, err
	}
	err := d.removeUnexpected(w.path)
	if err != nil {
		return md, err
	}
	captions, warnings, err := media.AcceptCaptions(w.path, in.Info)
	if err != nil {
		return md, refusal(err)
	}
	md.Captions, md.Warnings = captions, append(md.Warnings, warnings...)
	if err = md.write(w.path); err == nil {
		md.Dir, err = f.finish(ctx, c, w)
	}
	return md, err
}

// acceptPoster makes a new picture of the worker's poster, so that nobody else decodes what the worker sent.
func (f *RemoteFiles) acceptPoster(ctx context.Context, file string, info *media.Info) error {
	err := checkPoster(file, info)
	if err == nil {
		err = f.config.Tools.RewritePoster(ctx, file)
	}
	if errors.Is(err, media.ErrNoPicture) {
		return refused("the poster cannot be decoded")
	}
	return err
}

// checkPoster refuses a file that is not a picture in JPEG form, no larger than the video.
func checkPoster(file string, info *media.Info) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	head, err := jpeg.DecodeConfig(in)
	if err != nil {
		return refused("the poster is not a picture in JPEG form")
	}
	if info.Video == nil || head.Width > maxPosterSize || head.Height > maxPosterSize {
		return refused("the poster has %d by %d pixels", head.Width, head.Height)
	}
	return nil
}

// maxPosterSize is the most pixels that a poster has in either direction.
const maxPosterSize = 8192

// finish gives a checked directory its final name, and stores it if the results are in a bucket.
func (f *RemoteFiles) finish(ctx context.Context, c engine.Claim, w *workdir) (string, error) {
	if err := w.sync(ctx, &stages.Job{}); err != nil {
		return "", err
	}
	var stored storedNames
	if f.bucket != nil {
		var err error
		if stored, err = f.bucket.list(ctx, c.Task); err != nil {
			return "", err
		}
	}
	if err := w.renameNewest(ctx, stored); err != nil || f.bucket == nil {
		return w.String(), err
	}
	return w.String(), f.bucket.putDir(ctx, f.job(c), w.String())
}

// renameNewest gives the directory its final name, with a number above those of all others.
func (w *workdir) renameNewest(ctx context.Context, stored storedNames) error {
	lock, err := lockDir(ctx, w.parent)
	if err != nil {
		return err
	}
	defer flock.Unlock(lock)
	names, err := dirNames(w.parent, w.stage)
	if err != nil {
		return err
	}
	for _, d := range append(names, stored...) {
		if d.stage == w.stage && d.random != w.random {
			w.number = max(w.number, d.number+1)
		}
	}
	return w.rename()
}
