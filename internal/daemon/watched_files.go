package daemon

import (
	"context"
	"errors"
	"io/fs"
	"net/url"
	"slices"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/inbox"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// watchedFiles submits the files that appear in watched directories.
type watchedFiles struct {
	store  *store.Store
	bucket *video.Bucket // nil if every host that ingests has the files
	log    *zap.Logger
}

// run watches until ctx ends.
func (w watchedFiles) run(ctx context.Context, o inbox.Options) error {
	o.OnError, o.Submit = w.logFailure, w.submit
	for _, dir := range o.Dirs {
		w.log.Info("watching", zap.String("path", dir))
	}
	return inbox.Run(ctx, o)
}

// submit submits files. Those that cannot be copied into the bucket are in the inbox.FileErrors.
func (w watchedFiles) submit(ctx context.Context, files []inbox.File) error {
	if w.bucket == nil {
		return w.submitAll(ctx, files)
	}
	failed := make(inbox.FileErrors)
	for i, f := range files {
		// A task begins when its file is in the bucket, and need not wait for other files.
		err := w.submitAll(ctx, files[i:i+1])
		if own, ok := errors.AsType[*fileError](err); ok {
			failed[f.Path] = own
		} else if err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}

func (w watchedFiles) submitAll(ctx context.Context, files []inbox.File) error {
	files, err := w.withoutDeleted(ctx, files)
	if err != nil || len(files) == 0 {
		return err
	}
	subs := make([]store.Submission, len(files))
	for i, f := range files {
		subs[i] = store.Submission{Source: SourceOfPath(f.Path), RequestID: f.RequestID()}
	}
	if err := profiles.Prepare(ctx, w.store, subs); err != nil {
		return err
	}
	for i := range subs {
		if err := StoreSource(ctx, w.store, w.bucket, &subs[i]); err != nil {
			return err
		}
	}
	var receipts []store.Receipt
	err = w.store.InTx(ctx, func(in *store.Store) error {
		// A request id is that of one version of a file. Its task may have another source if the data
		// were elsewhere: it was submitted.
		if receipts, err = in.SubmitAll(ctx, subs); err != nil && !errors.Is(err, store.ErrRequestIDTaken) {
			return err
		}
		for i, r := range receipts {
			if r.Existed {
				continue
			}
			if err := w.attachCaptions(ctx, in, r.ID, files[i].Path); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, r := range receipts {
		if !r.Existed {
			w.log.Info("file submitted", zap.Stringer("task_id", r.ID), zap.String("path", files[i].Path))
		}
	}
	return nil
}

// attachCaptions attaches the files with captions that lie next to a video. Those that cannot be read do not delay it.
func (w watchedFiles) attachCaptions(ctx context.Context, in *store.Store, task store.ID, path string) error {
	for _, file := range attached.NextTo(path) {
		data, err := attached.Read(file)
		if err == nil {
			_, err = attached.New(in).Add(ctx, task, file, data, attached.File{AddedBy: "watched directory"})
		}
		_, isInvalid := errors.AsType[*attached.InvalidError](err)
		_, isUnreadable := errors.AsType[*fs.PathError](err)
		switch {
		case isInvalid, isUnreadable:
			w.log.Warn("captions in a watched directory cannot be attached",
				zap.Stringer("task_id", task), zap.String("path", file), zap.Error(err))
		case err != nil:
			return err
		}
	}
	return nil
}

// withoutDeleted returns the files whose videos were not deleted: a file that stays must not be published again.
func (w watchedFiles) withoutDeleted(ctx context.Context, files []inbox.File) ([]inbox.File, error) {
	ids := make([]string, len(files))
	for i, f := range files {
		ids[i] = f.RequestID()
	}
	deleted, err := w.store.DeletedRequests(ctx, ids)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(files), func(f inbox.File) bool {
		return slices.Contains(deleted, f.RequestID())
	}), nil
}

// logFailure logs that a directory, or the database if dir is empty, fails or works again, or that a
// file cannot be submitted.
func (w watchedFiles) logFailure(dir string, err error) {
	_, isOfFile := errors.AsType[*fileError](err)
	switch {
	case isOfFile:
		w.log.Warn("a file in a watched directory cannot be submitted; it is tried again", zap.String("path", dir), zap.Error(err))
	case dir == "" && err != nil:
		w.log.Warn("files in watched directories cannot be submitted yet", zap.Error(err))
	case dir == "":
		w.log.Info("files in watched directories can be submitted again")
	case err != nil:
		w.log.Warn("watched directory cannot be read", zap.String("path", dir), zap.Error(err))
	default:
		w.log.Info("watched directory can be read again", zap.String("path", dir))
	}
}

// SourceOfPath returns the source of a task for an absolute path: the path, or a file URL
// if the path is not UTF-8, which the database could not store.
func SourceOfPath(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}
