package upload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// handTime is how long OnComplete has.
const submitTimeout = time.Minute

// errLater: the file is complete and safe, but nobody has taken it yet.
var errNotSubmitted = errors.New("complete upload was not handed over")

// finish makes a complete file of what has come, and hands it over. Each step
// is done once, whenever the process dies between two. The caller holds the
// upload.
func (u *Uploads) complete(ctx context.Context, e *record) error {
	if !e.isComplete() {
		if err := u.renameToSource(e); err != nil {
			return err
		}
	}
	if !e.state.SubmittedAt.IsZero() {
		return nil
	}
	return u.submit(ctx, e)
}

// seal syncs the file and gives it the name of a complete one.
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

// hand calls OnComplete. The client may be gone by now, and need not wait.
func (u *Uploads) submit(ctx context.Context, e *record) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitTimeout)
	defer cancel()
	got, err := u.options.OnComplete(ctx, e.Upload)
	switch {
	case errors.Is(err, ErrRefused):
		refused := &problem{status: http.StatusUnprocessableEntity, detail: err.Error()}
		return errors.Join(refused, u.deleteFiles(e.ID))
	case errors.Is(err, ErrRequestTaken):
		return u.keepForNewRequestID(e, err)
	case err != nil:
		return fmt.Errorf("%w: %w", errNotSubmitted, err)
	}
	e.Task, e.Existed = got.Task, got.Existed
	e.state.Task, e.state.Existed, e.state.RequestIDTaken = got.Task, got.Existed, false
	e.state.SubmittedAt, e.state.Length = time.Now().UTC(), e.Size
	if err := u.save(e); err != nil {
		return fmt.Errorf("%w for good: %w", errNotSubmitted, err)
	}
	return nil
}

// taken keeps a file whose request id is another task's, until the client names
// another id or deletes it, or that task is gone.
func (u *Uploads) keepForNewRequestID(e *record, why error) error {
	refused := &problem{status: http.StatusConflict, kind: kindRequestTaken, detail: why.Error() + "; the file is kept"}
	if e.state.RequestIDTaken {
		return refused
	}
	e.state.RequestIDTaken, e.state.Length = true, e.Size
	return errors.Join(refused, u.save(e))
}

// Recover hands over what was complete when the process ended before it could.
// It returns when all has been tried once; what failed is tried again by Tidy.
func (u *Uploads) Recover(ctx context.Context) error {
	ids, err := u.ids(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := u.submitPending(ctx, id); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// retake hands an upload over if that is all it waits for.
func (u *Uploads) submitPending(ctx context.Context, id string) (handed bool, err error) {
	waits := func(e *record) bool {
		return e.state.SubmittedAt.IsZero() && (e.isComplete() || e.hasAllBytes() && !e.state.SingleRequest)
	}
	err = u.withLock(ctx, id, waits, func(e *record) error {
		err := u.complete(ctx, e)
		handed = err == nil
		if told, ok := errors.AsType[*problem](err); ok && told.kind == kindRequestTaken {
			return nil // its client was told, and may come back
		}
		return err
	})
	return handed, err
}

// alone does something with an upload that is as it should be, before and after
// it is held. One that somebody else has is left alone: who has it sees to it.
func (u *Uploads) withLock(ctx context.Context, id string, like func(*record) bool, do func(*record) error) error {
	e, err := u.load(id)
	if err == nil && like(e) {
		var h *lockedUpload
		if h, err = u.lock(ctx, id, newActiveRequest(nil, 0), takeoverNever); err == nil {
			defer h.unlock()
			if e, err = u.load(id); err == nil && like(e) {
				err = do(e)
			}
		}
	}
	if errors.Is(err, ErrNotFound) || errors.Is(err, errBusy) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("upload %s: %w", id, err)
	}
	return nil
}
