package upload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/fetch"
)

// Uploads takes files in. Make one with [New].
type Uploads struct {
	options Options
	root    *os.Root // of dir
	dir     string   // Options.Dir/uploads

	reserving sync.Mutex // from counting what there is to there being one more

	mu      sync.Mutex
	active  map[string]*activeRequest // by upload
	closing bool

	requests sync.WaitGroup

	buffers bufferPool
}

// New opens the directory of uploads, and makes it if there is none.
func New(o Options) (*Uploads, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("uploads: %w", err)
	}
	dir := filepath.Join(abs, "uploads")
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("uploads: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("uploads: %w", err)
	}
	return &Uploads{options: o, root: root, dir: dir, active: make(map[string]*activeRequest)}, nil
}

// Close ends what is under way and waits for it. What has come of resumable
// uploads stays, and their clients are told to come back. Requests that follow
// are refused with 503. Recover, Tidy and Release must have returned.
func (u *Uploads) Close() error {
	u.mu.Lock()
	u.closing = true
	for _, s := range u.active {
		s.interrupt(errClosing)
	}
	u.mu.Unlock()
	u.requests.Wait()
	return u.root.Close()
}

// enterRequest counts a request in, unless it comes too late.
func (u *Uploads) enterRequest() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closing {
		u.requests.Add(1)
	}
	return !u.closing
}

// begin makes a new upload, if there is room for it. Length is negative where
// that is not known. The caller has it held.
func (u *Uploads) createUpload(ctx context.Context, s *activeRequest, e *record) (*lockedUpload, error) {
	if e.state.Length > u.options.MaxBytes {
		return nil, newProblem(http.StatusRequestEntityTooLarge, "an upload may have %d bytes", u.options.MaxBytes)
	}
	e.Size = e.state.Length
	e.Principal, e.state.Principal = u.options.Principal(ctx), u.options.Principal(ctx)
	if err := u.options.Check(ctx, e.Upload); errors.Is(err, ErrRefused) {
		return nil, &problem{status: http.StatusUnprocessableEntity, detail: err.Error()}
	} else if err != nil {
		return nil, fmt.Errorf("check upload: %w", err)
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
	h, err := u.lock(ctx, e.ID, s, takeoverNever)
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

// admit refuses what would go over a limit. The caller is the only one who admits.
func (u *Uploads) reserve(ctx context.Context, e *record) error {
	begun, err := u.unfinished(ctx)
	if err != nil {
		return err
	}
	unfinished, mine, all, announced := 0, u.remaining(e), u.remaining(e), u.announcedRemaining(e)
	for _, b := range begun {
		if b.ID == e.ID {
			continue
		}
		var n int64
		if !u.isReservationExpired(b) {
			n = u.remaining(b)
			announced += u.announcedRemaining(b)
		}
		if all += n; b.Principal == e.Principal {
			unfinished++
			mine += n
		}
	}
	var r *problem
	switch {
	case unfinished >= u.options.MaxUnfinished:
		r = newProblem(http.StatusTooManyRequests, "%d uploads are begun and not finished: finish or delete one", unfinished)
	case mine > u.options.MaxReservedPerPrincipal:
		r = newProblem(http.StatusTooManyRequests, "with this one %d bytes of yours are yet to come, of %d: finish or delete another", mine, u.options.MaxReservedPerPrincipal)
	case all > u.options.MaxReserved:
		r = newProblem(http.StatusServiceUnavailable, "too much is being uploaded already")
		r.kind = "uploads-full"
	default:
		return u.checkDisk(announced)
	}
	r.retryAfter = 60
	return r
}

// yetToCome is how many bytes of an upload are still to be expected.
func (u *Uploads) remaining(e *record) int64 { return max(u.maxLength(e)-e.offset, 0) }

// announced is yetToCome where that is known. Where not, it may be far less, and whether
// there is room for it, writing will tell.
func (u *Uploads) announcedRemaining(e *record) int64 {
	if e.state.Length < 0 && e.state.MaxLength == 0 {
		return 0
	}
	return u.remaining(e)
}

// lapsed: no room is kept for it, since nothing was added to it for a while. Whoever
// begins a lot and sends nothing keeps others out for no longer than that.
func (u *Uploads) isReservationExpired(e *record) bool {
	return time.Since(e.lastWrite) > u.options.ReservationTimeout
}

// readmit gets room for an upload again that has lapsed. The caller holds it.
func (u *Uploads) renewReservation(ctx context.Context, e *record) error {
	if e.isComplete() || e.hasAllBytes() || !u.isReservationExpired(e) {
		return nil
	}
	u.reserving.Lock()
	defer u.reserving.Unlock()
	if err := u.reserve(ctx, e); err != nil {
		return err
	}
	e.lastWrite = time.Now()
	if err := u.root.Chtimes(filepath.Join(e.ID, partFile), e.lastWrite, e.lastWrite); err != nil {
		return fmt.Errorf("continue upload: %w", err)
	}
	return nil
}

// room refuses what would fill the disk. One that cannot say how full it is,
// is taken to have room: writing will tell.
func (u *Uploads) checkDisk(toCome int64) error {
	free, err := fetch.FreeSpace(u.dir)
	if err != nil || free-toCome >= u.options.MinFree {
		return nil
	}
	return errDiskFull
}

// own looks up an upload that the principal who asks may see and continue.
func (u *Uploads) find(ctx context.Context, id string) (*record, error) {
	e, err := u.load(id)
	if err != nil {
		return nil, err
	}
	if e.Principal != u.options.Principal(ctx) || e.state.SingleRequest && !e.isComplete() {
		return nil, errNotFound
	}
	if u.isExpired(e) {
		return nil, newProblem(http.StatusGone, "nothing was added to this upload for %v", u.options.Expiration)
	}
	return e, nil
}
