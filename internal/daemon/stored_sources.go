package daemon

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// StoreSource copies the file that a submission names into the bucket and makes the copy the source, so
// that any host can ingest it. It leaves sources that are not files of this host. A file whose
// request has a task already is not copied again. Without a bucket it does nothing.
func StoreSource(ctx context.Context, st *store.Store, bucket *video.Bucket, sub *store.Submission) error {
	file := sub.Source
	if u, err := url.Parse(file); err == nil && u.Scheme == "file" {
		file = u.Path
	}
	if bucket == nil || !filepath.IsAbs(file) {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return nil // ingest says what is wrong with it, if it is wrong everywhere
	}
	name := filepath.Base(file)
	if sub.RequestID == "" {
		return storeFile(ctx, bucket, "file-"+rand.Text(), file, name, sub)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", sub.SubmittedBy, sub.RequestID, sub.Source))
	request := "request-" + hex.EncodeToString(sum[:16])
	known, err := st.List(ctx, store.ListQuery{Filter: store.Filter{RequestID: sub.RequestID}})
	if err != nil {
		return err
	}
	for _, t := range known {
		if t.SubmittedBy != sub.SubmittedBy {
			continue
		}
		if strings.Contains(t.Source, "/"+request) {
			sub.Source = t.Source
		}
		return nil // the store compares the sources
	}
	// The copy of another version of the file may be there, if its submission failed.
	sum = sha256.Sum256(fmt.Appendf(nil, "%d\x00%d", info.Size(), info.ModTime().UnixNano()))
	return storeFile(ctx, bucket, request+"-"+hex.EncodeToString(sum[:8]), file, name, sub)
}

func storeFile(ctx context.Context, bucket *video.Bucket, id, file, name string, sub *store.Submission) error {
	address, err := bucket.StoreSource(ctx, id, file, name)
	_, isService := errors.AsType[*storage.ServiceError](err)
	if err != nil && !isService && ctx.Err() == nil {
		return &fileError{err}
	}
	if err == nil {
		sub.Source = address
	}
	return err
}

// fileError is an error of StoreSource that has its cause in the file, such as a missing permission.
type fileError struct{ error }

func (e *fileError) Unwrap() error { return e.error }

// uploadSource returns the source of the task of an upload.
func uploadSource(bucket *video.Bucket, u upload.Upload) string {
	if bucket == nil {
		return u.Path
	}
	return bucket.SourceAddress(storedUploadID(u), u.Name)
}

// storeUpload returns a function that copies an uploaded file into the bucket, so that any host can
// ingest it.
func storeUpload(bucket *video.Bucket) func(context.Context, upload.Upload) error {
	if bucket == nil {
		return nil
	}
	return func(ctx context.Context, u upload.Upload) error {
		_, err := bucket.StoreSource(ctx, storedUploadID(u), u.Path, u.Name)
		return err
	}
}

// releaseUpload returns a function that deletes the copy in the bucket.
func releaseUpload(bucket *video.Bucket) func(context.Context, upload.Upload) error {
	if bucket == nil {
		return nil
	}
	return func(ctx context.Context, u upload.Upload) error {
		return bucket.DeleteSource(ctx, uploadSource(bucket, u))
	}
}
