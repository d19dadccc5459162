package upload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/cuelight/cuelight/internal/problem"
)

// Uploads receives files. Create one with [New].
type Uploads struct {
	options Options
	root    *os.Root // of dir
	dir     string   // Options.Dir/uploads

	reserving sync.Mutex // held from the check of the limits until the upload exists

	mu      sync.Mutex
	active  map[string]*activeRequest // by upload id
	closing bool

	closed   context.Context // ends with Close
	close    context.CancelFunc
	requests sync.WaitGroup
}

// New opens the directory of uploads, and creates it if necessary.
func New(o Options) (*Uploads, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("uploads: %w", err)
	}
	dir := filepath.Join(abs, DirName)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("uploads: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("uploads: %w", err)
	}
	u := &Uploads{options: o, root: root, dir: dir, active: make(map[string]*activeRequest)}
	u.closed, u.close = context.WithCancel(context.Background())
	return u, nil
}

// Close interrupts the active requests and waits for them. It keeps the data of resumable
// uploads, and asks their clients to retry. Later requests get 503. CleanUp must have
// returned.
func (u *Uploads) Close() error {
	u.mu.Lock()
	u.closing = true
	u.close()
	for _, r := range u.active {
		r.interrupt(errClosing)
	}
	u.mu.Unlock()
	u.requests.Wait()
	return u.root.Close()
}

// enterRequest adds a request to those that Close waits for. It returns false after Close.
func (u *Uploads) enterRequest() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closing {
		u.requests.Add(1)
	}
	return !u.closing
}

// createUpload creates and locks an upload, if the limits permit it.
func (u *Uploads) createUpload(ctx context.Context, r *activeRequest, e *record) (*lockedUpload, error) {
	if e.state.Length > u.options.MaxBytes {
		return nil, u.tooLarge()
	}
	e.Size = e.state.Length
	e.Principal = u.options.Principal(ctx)
	e.state.Principal = e.Principal
	if err := u.prepare(ctx, e); err != nil {
		return nil, err
	}
	u.reserving.Lock()
	defer u.reserving.Unlock()
	if err := u.reserve(ctx, e); err != nil {
		return nil, err
	}
	e.ID = newID()
	if err := u.root.Mkdir(e.ID, dirMode); err != nil {
		return nil, fmt.Errorf("create upload: %w", diskError(err))
	}
	h, err := u.lock(ctx, e.ID, r, takeoverNever)
	if err != nil {
		return nil, errors.Join(err, u.deleteFiles(e.ID))
	}
	if err := u.createFiles(e); err != nil {
		err = errors.Join(err, u.deleteFiles(e.ID))
		h.unlock()
		return nil, err
	}
	return h, nil
}

// prepare lets Options.Prepare check and change what the client asked for, before it sends the file.
func (u *Uploads) prepare(ctx context.Context, e *record) error {
	prepared := e.Upload
	if err := u.options.Prepare(ctx, &prepared); err != nil {
		if p, ok := errors.AsType[*problem.Problem](err); ok {
			return p
		}
		if errors.Is(err, ErrRefused) {
			return problem.New(problem.Invalid, "%v", err)
		}
		u.options.OnError("", err)
		return nil
	}
	metadata := maps.Clone(e.state.Metadata)
	for key, value := range map[string]json.RawMessage{"params": prepared.Params, "placement": prepared.Placement} {
		if value != nil {
			metadata[key] = string(value)
		}
	}
	checked, err := newUpload(metadata)
	if err != nil {
		return err
	}
	e.Params, e.Placement, e.Metadata, e.state.Metadata = checked.Params, checked.Placement, metadata, metadata
	return nil
}

// find returns an upload that the principal of the request may see and resume.
func (u *Uploads) find(ctx context.Context, id string) (*record, error) {
	e, err := u.load(id)
	if err != nil {
		return nil, err
	}
	if e.Principal != u.options.Principal(ctx) || e.state.SingleRequest && !e.isComplete() {
		return nil, errNotFound
	}
	if u.isExpired(e) {
		return nil, problem.New(problem.UploadExpired, "the upload received no data for %v and has expired; create a new one",
			u.options.Expiration)
	}
	return e, nil
}

// findAndLock returns and locks an upload. It checks the access before it interrupts
// another request, and reads the upload again after it has the lock.
func (u *Uploads) findAndLock(
	ctx context.Context, id string, r *activeRequest, t takeover,
) (*lockedUpload, *record, error) {
	if _, err := u.find(ctx, id); err != nil {
		return nil, nil, err
	}
	h, err := u.lock(ctx, id, r, t)
	if err != nil {
		return nil, nil, err
	}
	e, err := u.find(ctx, id)
	if err != nil {
		h.unlock()
		return nil, nil, err
	}
	return h, e, nil
}

func (u *Uploads) tooLarge() *problem.Problem {
	return problem.New(problem.TooLarge, "the file exceeds the limit of %d bytes", u.options.MaxBytes)
}
