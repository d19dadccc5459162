package upload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// rubbishAge is how long a directory without a state is left alone: it may be
// about to get one.
const rubbishAge = time.Hour

// Tidied says what [Uploads.Tidy] did.
type Tidied struct {
	Expired  int   // unfinished uploads deleted, or what was left of some
	Released int   // finished files deleted because their tasks need them no more
	Handed   int   // complete uploads handed over that could not be before
	Bytes    int64 // deleted
}

// Tidy deletes what the package's documentation says is deleted by it, and
// hands over what could not be before. It does as much as it can, whatever the
// error. Call it every few minutes.
func (u *Uploads) Tidy(ctx context.Context) (Tidied, error) {
	var done Tidied
	ids, err := u.ids(ctx)
	if err != nil {
		return done, err
	}
	var errs []error
	for _, id := range ids {
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		if err := u.tidyOne(ctx, id, &done); err != nil {
			errs = append(errs, err)
		}
	}
	return done, errors.Join(errs...)
}

func (u *Uploads) tidyOne(ctx context.Context, id string, done *Tidied) error {
	if rubbish, err := u.tidyRubbish(id); rubbish || err != nil {
		if err == nil {
			done.Expired++
		}
		return err
	}
	handed, err := u.retake(ctx, id)
	if handed {
		done.Handed++
	}
	if err != nil {
		return err
	}
	err = u.alone(ctx, id, u.lost, func(e *entry) error {
		done.Expired++
		done.Bytes += e.offset
		return u.remove(id)
	})
	if err != nil {
		return err
	}
	return u.tidyFinished(ctx, id, done)
}

// tidyRubbish deletes a directory that is no upload.
func (u *Uploads) tidyRubbish(id string) (bool, error) {
	if _, err := u.root.Lstat(filepath.Join(id, stateFile)); !errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	info, err := u.root.Lstat(id)
	if err != nil || time.Since(info.ModTime()) < rubbishAge {
		return false, nil
	}
	return true, u.remove(id)
}

// expired: nobody has added anything for long.
func (u *Uploads) expired(e *entry) bool {
	return !e.complete() && !e.full() && time.Since(e.touched) > u.o.Expire
}

// lost: it will not be continued. Of a simple upload that nobody holds there is
// nobody to.
func (u *Uploads) lost(e *entry) bool {
	return u.expired(e) || e.state.OneShot && !e.complete()
}

// tidyFinished asks what became of an upload's task.
func (u *Uploads) tidyFinished(ctx context.Context, id string, done *Tidied) error {
	return u.alone(ctx, id, handedOver, func(e *entry) error {
		fate, err := u.o.Fate(ctx, e.Upload)
		if err != nil {
			return fmt.Errorf("ask for the fate of its task: %w", err)
		}
		gone := e.state.GoneSince
		switch {
		case fate == Taken, fate == Gone && !gone.IsZero() && time.Since(gone) >= u.o.GoneFor:
			done.Released++
			done.Bytes += e.Size
			return u.remove(id)
		case fate == Gone && gone.IsZero():
			e.state.GoneSince = time.Now().UTC()
			return u.save(e)
		case fate != Gone && !gone.IsZero():
			e.state.GoneSince = time.Time{}
			return u.save(e)
		}
		return nil
	})
}

func handedOver(e *entry) bool { return e.complete() && !e.state.Handed.IsZero() }

// Release deletes a finished upload, whose task the caller knows to need its
// file no more. Where there is none of that id that was handed over, it returns
// ErrNotFound.
func (u *Uploads) Release(ctx context.Context, id string) error {
	released := false
	err := u.alone(ctx, id, handedOver, func(*entry) error {
		released = true
		return u.remove(id)
	})
	if err == nil && !released {
		return fmt.Errorf("release upload %q: %w", id, ErrNotFound)
	}
	return err
}
