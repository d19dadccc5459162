package upload

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/cuelight/cuelight/internal/flock"
)

const (
	// takeoverWait is how long a request waits for an interrupted one.
	takeoverWait = 10 * time.Second
	// completionWait is how long it waits for one that has all bytes, which may take
	// minutes to complete the file.
	completionWait = time.Second
)

// lockedUpload is an upload that no other request or process can change.
type lockedUpload struct {
	uploads *Uploads
	id      string
	request *activeRequest
	dir     *os.File // has the lock against other processes
}

// takeover says when a request interrupts another one to lock its upload.
type takeover int

const (
	takeoverNever takeover = iota
	takeoverSilent
	takeoverAlways
)

// lock locks an upload for a request. It may interrupt the request that has the lock.
func (u *Uploads) lock(ctx context.Context, id string, a *activeRequest, t takeover) (*lockedUpload, error) {
	for {
		other, err := u.register(id, a)
		if err != nil {
			return nil, err
		}
		if other == nil {
			break
		}
		switch {
		case t == takeoverNever:
			return nil, errBusy
		case t == takeoverSilent && !other.isSilent(u.options.TakeoverTimeout):
			return nil, other.busyProblem()
		}
		if err := other.takeOver(ctx); err != nil {
			return nil, err
		}
	}
	h := &lockedUpload{uploads: u, id: id, request: a}
	if err := h.flock(); err != nil {
		h.unlock()
		return nil, err
	}
	return h, nil
}

// register makes a the active request of an upload, or returns the present one.
func (u *Uploads) register(id string, a *activeRequest) (*activeRequest, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing {
		return nil, errClosing
	}
	if other := u.active[id]; other != nil {
		return other, nil
	}
	u.active[id] = a
	return nil, nil
}

// takeOver interrupts a request and waits until it has unlocked its upload.
func (a *activeRequest) takeOver(ctx context.Context) error {
	a.interrupt(errTakenOver)
	wait := takeoverWait
	if a.busyProblem() == errCompleting {
		wait = completionWait
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-a.done:
		return nil
	case <-ctx.Done():
		return errBodyIncomplete // the waiting client is gone
	case <-timer.C:
		return a.busyProblem()
	}
}

// interruptSilent interrupts the active request of an upload if it is silent, so that the
// offset does not change afterwards.
func (u *Uploads) interruptSilent(ctx context.Context, id string) error {
	u.mu.Lock()
	a := u.active[id]
	u.mu.Unlock()
	if a == nil || !a.isSilent(u.options.TakeoverTimeout) {
		return nil
	}
	return a.takeOver(ctx)
}

// flock locks the upload against other processes, if the file system supports it.
func (h *lockedUpload) flock() error {
	d, err := h.uploads.root.Open(h.id)
	if errors.Is(err, os.ErrNotExist) {
		return errNotFound
	}
	if err != nil {
		return err
	}
	h.dir = d
	if locked, err := flock.TryLock(d, flock.Exclusive); !locked && err == nil {
		return errBusy
	}
	return nil
}

func (h *lockedUpload) unlock() {
	if h.dir != nil {
		flock.Unlock(h.dir)
	}
	h.request.endReading()
	h.uploads.mu.Lock()
	delete(h.uploads.active, h.id)
	h.uploads.mu.Unlock()
	close(h.request.done)
}
