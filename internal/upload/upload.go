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
	o    Options
	root *os.Root // of dir
	dir  string   // Options.Dir/uploads

	admitting sync.Mutex // from counting what there is to there being one more

	mu      sync.Mutex
	live    map[string]*session // by upload
	closing bool

	requests sync.WaitGroup

	buffers buffers
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
	return &Uploads{o: o, root: root, dir: dir, live: make(map[string]*session)}, nil
}

// Close ends what is under way and waits for it. What has come of resumable
// uploads stays, and their clients are told to come back. Requests that follow
// are refused with 503. Recover, Tidy and Release must have returned.
func (u *Uploads) Close() error {
	u.mu.Lock()
	u.closing = true
	for _, s := range u.live {
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
func (u *Uploads) begin(ctx context.Context, s *session, e *entry) (*held, error) {
	if e.state.Length > u.o.MaxBytes {
		return nil, refuse(http.StatusRequestEntityTooLarge, "an upload may have %d bytes", u.o.MaxBytes)
	}
	e.Size = e.state.Length
	e.Principal, e.state.Principal = u.o.Principal(ctx), u.o.Principal(ctx)
	if err := u.o.Check(ctx, e.Upload); errors.Is(err, ErrRefused) {
		return nil, &refusal{status: http.StatusUnprocessableEntity, detail: err.Error()}
	} else if err != nil {
		return nil, fmt.Errorf("check upload: %w", err)
	}
	u.admitting.Lock()
	defer u.admitting.Unlock()
	if err := u.admit(ctx, e); err != nil {
		return nil, err
	}
	e.ID = newID()
	if err := u.root.Mkdir(e.ID, dirMode); err != nil {
		return nil, fmt.Errorf("create upload: %w", diskError(err))
	}
	h, err := u.hold(ctx, e.ID, s, ifFree)
	if err != nil {
		return nil, errors.Join(err, u.remove(e.ID))
	}
	if err := u.create(e); err != nil {
		err = errors.Join(err, u.remove(e.ID))
		h.release()
		return nil, err
	}
	return h, nil
}

// admit refuses what would go over a limit. The caller is the only one who admits.
func (u *Uploads) admit(ctx context.Context, e *entry) error {
	begun, err := u.unfinished(ctx)
	if err != nil {
		return err
	}
	unfinished, mine, all, announced := 0, u.yetToCome(e), u.yetToCome(e), u.announced(e)
	for _, b := range begun {
		if b.ID == e.ID {
			continue
		}
		var n int64
		if !u.lapsed(b) {
			n = u.yetToCome(b)
			announced += u.announced(b)
		}
		if all += n; b.Principal == e.Principal {
			unfinished++
			mine += n
		}
	}
	var r *refusal
	switch {
	case unfinished >= u.o.MaxUnfinished:
		r = refuse(http.StatusTooManyRequests, "%d uploads are begun and not finished: finish or delete one", unfinished)
	case mine > u.o.MaxReservedEach:
		r = refuse(http.StatusTooManyRequests, "with this one %d bytes of yours are yet to come, of %d: finish or delete another", mine, u.o.MaxReservedEach)
	case all > u.o.MaxReserved:
		r = refuse(http.StatusServiceUnavailable, "too much is being uploaded already")
		r.kind = "uploads-full"
	default:
		return u.room(announced)
	}
	r.retry = 60
	return r
}

// yetToCome is how many bytes of an upload are still to be expected.
func (u *Uploads) yetToCome(e *entry) int64 { return max(u.most(e)-e.offset, 0) }

// announced is yetToCome where that is known. Where not, it may be far less, and whether
// there is room for it, writing will tell.
func (u *Uploads) announced(e *entry) int64 {
	if e.state.Length < 0 && e.state.Most == 0 {
		return 0
	}
	return u.yetToCome(e)
}

// lapsed: no room is kept for it, since nothing was added to it for a while. Whoever
// begins a lot and sends nothing keeps others out for no longer than that.
func (u *Uploads) lapsed(e *entry) bool { return time.Since(e.touched) > u.o.Lapse }

// readmit gets room for an upload again that has lapsed. The caller holds it.
func (u *Uploads) readmit(ctx context.Context, e *entry) error {
	if e.complete() || e.full() || !u.lapsed(e) {
		return nil
	}
	u.admitting.Lock()
	defer u.admitting.Unlock()
	if err := u.admit(ctx, e); err != nil {
		return err
	}
	e.touched = time.Now()
	if err := u.root.Chtimes(filepath.Join(e.ID, partFile), e.touched, e.touched); err != nil {
		return fmt.Errorf("continue upload: %w", err)
	}
	return nil
}

// room refuses what would fill the disk. One that cannot say how full it is,
// is taken to have room: writing will tell.
func (u *Uploads) room(toCome int64) error {
	free, err := fetch.FreeSpace(u.dir)
	if err != nil || free-toCome >= u.o.MinFree {
		return nil
	}
	return errDiskFull
}

// own looks up an upload that the principal who asks may see and continue.
func (u *Uploads) own(ctx context.Context, id string) (*entry, error) {
	e, err := u.load(id)
	if err != nil {
		return nil, err
	}
	if e.Principal != u.o.Principal(ctx) || e.state.OneShot && !e.complete() {
		return nil, errNoUpload
	}
	if u.expired(e) {
		return nil, refuse(http.StatusGone, "nothing was added to this upload for %v", u.o.Expire)
	}
	return e, nil
}
