package upload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
)

// submitTimeout limits OnComplete.
const submitTimeout = time.Minute

// errNotSubmitted means that the file is complete and on disk, but has no task yet.
var errNotSubmitted = errors.New("complete upload was not submitted")

// complete completes an upload that has all bytes, and submits it. It continues where an
// earlier call or process stopped. The caller has locked the upload.
func (u *Uploads) complete(ctx context.Context, e *record) error {
	if !e.isComplete() {
		if err := u.renameToSource(e); err != nil {
			return err
		}
	}
	if !e.state.SubmittedAt.IsZero() {
		return nil
	}
	if err := u.options.Store(ctx, e.Upload); err != nil {
		return fmt.Errorf("%w: store it: %w", errNotSubmitted, err)
	}
	return u.submit(ctx, e)
}

// renameToSource verifies and syncs the file, and gives it its final name.
func (u *Uploads) renameToSource(e *record) error {
	if err := u.verifyAndSync(e); err != nil {
		return err
	}
	source := sourceFile + safeExtension(e.Name)
	if err := u.root.Rename(filepath.Join(e.ID, partFile), filepath.Join(e.ID, source)); err != nil {
		return fmt.Errorf("complete upload: %w", err)
	}
	if err := u.syncDir(e.ID); err != nil {
		return fmt.Errorf("complete upload: %w", err)
	}
	e.sourceName, e.Path, e.Size = source, filepath.Join(u.dir, e.ID, source), e.offset
	return nil
}

func (u *Uploads) verifyAndSync(e *record) error {
	f, err := u.root.OpenFile(filepath.Join(e.ID, partFile), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("complete upload: %w", err)
	}
	defer f.Close()
	if e.SHA256 != "" {
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil {
			return fmt.Errorf("check upload: %w", err)
		}
		if hex.EncodeToString(sum.Sum(nil)) != e.SHA256 {
			return errors.Join(errSHA256Mismatch, u.deleteFiles(e.ID))
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("complete upload: %w", diskError(err))
	}
	return nil
}

// submit calls OnComplete and saves its result. It does not depend on the client's
// connection.
func (u *Uploads) submit(ctx context.Context, e *record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitTimeout)
	defer cancel()
	receipt, err := u.options.OnComplete(ctx, e.Upload)
	switch {
	case errors.Is(err, ErrRefused):
		return errors.Join(problem.New(problem.Invalid, "%v", err), u.deleteComplete(ctx, e))
	case errors.Is(err, ErrRequestIDTaken):
		return u.keepForNewRequestID(e, err)
	case err != nil:
		return fmt.Errorf("%w: %w", errNotSubmitted, err)
	}
	e.Task, e.Existed = receipt.Task, receipt.Existed
	e.state.Task, e.state.Existed, e.state.RequestIDTaken = receipt.Task, receipt.Existed, false
	e.state.SubmittedAt, e.state.Length = time.Now().UTC(), e.Size
	if err := u.save(e); err != nil {
		return fmt.Errorf("%w: save its task: %w", errNotSubmitted, err)
	}
	return nil
}

// keepForNewRequestID keeps a file whose request id belongs to another task, until the
// client sends another id or deletes the upload, or that task is deleted.
func (u *Uploads) keepForNewRequestID(e *record, cause error) error {
	p := problem.New(problem.RequestIDTaken, "%v; the file is kept", cause)
	if e.state.RequestIDTaken {
		return p
	}
	e.state.RequestIDTaken, e.state.Length = true, e.Size
	return errors.Join(p, u.save(e))
}

// submitPending submits an upload that has all bytes and is not submitted.
func (u *Uploads) submitPending(ctx context.Context, id string) (submitted bool, err error) {
	isPending := func(e *record) bool {
		return e.state.SubmittedAt.IsZero() && (e.isComplete() || e.hasAllBytes() && !e.state.SingleRequest)
	}
	err = u.withLock(ctx, id, isPending, func(e *record) error {
		err := u.complete(ctx, e)
		submitted = err == nil
		if p, ok := errors.AsType[*problem.Problem](err); ok && p.Kind == problem.RequestIDTaken {
			return nil // the client knows
		}
		return err
	})
	return submitted, err
}

// withLock locks an upload and calls do, if condition is true before and after the lock.
// It skips an upload that another request has locked.
func (u *Uploads) withLock(ctx context.Context, id string, condition func(*record) bool, do func(*record) error) error {
	e, err := u.load(id)
	if err == nil && condition(e) {
		var h *lockedUpload
		if h, err = u.lock(ctx, id, newActiveRequest(nil, 0), takeoverNever); err == nil {
			defer h.unlock()
			if e, err = u.load(id); err == nil && condition(e) {
				err = do(e)
			}
		}
	}
	if errors.Is(err, errNotFound) || errors.Is(err, errBusy) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("upload %s: %w", id, err)
	}
	return nil
}
