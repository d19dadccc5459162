package upload

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// giveWay is how long a request waits for another that is to end.
	takeoverWait = 10 * time.Second
	// letGo is how long it waits for one that has all, and may be at work with it for
	// minutes, or about to end.
	completionWait = time.Second
	// linger is how long the rest of a body may take that nobody wants.
	drainTimeout = 5 * time.Second
)

// session is one request's turn with an upload.
type activeRequest struct {
	control *http.ResponseController // nil: no request, but Tidy
	stall   time.Duration
	done    chan struct{} // closed when it is over

	mu           sync.Mutex
	lastReceived time.Time // when something came last
	deadlinesSet time.Time // when the deadlines were moved last
	interruption *problem  // it was told to end
	bodyEnded    bool      // the body was read to its end
	readingEnded bool      // it reads no more, and is not to be disturbed
}

func newActiveRequest(control *http.ResponseController, stall time.Duration) *activeRequest {
	return &activeRequest{control: control, stall: stall, done: make(chan struct{}), lastReceived: time.Now()}
}

// interrupt makes the request stop reading, and answer why.
func (s *activeRequest) interrupt(why *problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readingEnded || s.control == nil || s.interruption != nil {
		return
	}
	s.interruption = why
	_ = s.control.SetReadDeadline(time.Unix(1, 0)) // unsupported: it ends by itself
}

// silent reports whether nothing has come for so long.
func (s *activeRequest) isSilent(long time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.readingEnded && s.control != nil && time.Since(s.lastReceived) > long
}

// expect moves the deadlines before something is read. Moving them again and
// again within a moment would only cost time.
func (s *activeRequest) extendDeadlines() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now()
	switch {
	case s.interruption != nil:
		return s.interruption
	case at.Sub(s.deadlinesSet) < min(time.Second, s.stall/8):
		return nil
	}
	s.deadlinesSet = at
	// The answer has its time after the body.
	err := errors.Join(s.control.SetReadDeadline(at.Add(s.stall)), s.control.SetWriteDeadline(at.Add(2*s.stall)))
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return errBodyIncomplete // it is a connection no more
	}
	return nil
}

// watch interrupts a session of whose principal Options.Still says that it is revoked,
// until stop is called.
func (u *Uploads) watchPrincipal(ctx context.Context, s *activeRequest) (stop func()) {
	if s.bodyEnded {
		return func() {} // there is no body to wait for
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(u.options.CheckPrincipalInterval)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			if errors.Is(u.options.CheckPrincipal(ctx), ErrRevoked) {
				s.interrupt(errRevoked)
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// settle ends the reading: from now on nothing is interrupted, and no deadline
// of the body's strikes while the file is made durable. What the server itself
// may still want to read of a body, before it answers, has a moment.
func (s *activeRequest) endReading() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readingEnded || s.control == nil {
		return
	}
	s.readingEnded = true
	switch {
	case s.bodyEnded:
		_ = s.control.SetReadDeadline(time.Time{})
	case s.interruption == nil:
		_ = s.control.SetReadDeadline(time.Now().Add(drainTimeout))
	}
	_ = s.control.SetWriteDeadline(time.Time{})
}

// readError is what an error of the body's means for the client.
func (s *activeRequest) readError(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.interruption != nil:
		return s.interruption
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errStalled
	}
	return errBodyIncomplete
}

// came notes that the client is alive, and whether it has said all.
func (s *activeRequest) received(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 {
		s.lastReceived = time.Now()
	}
	if errors.Is(err, io.EOF) {
		s.bodyEnded = true
	}
}

// held is an upload that nobody else touches.
type lockedUpload struct {
	uploads *Uploads
	id      string
	request *activeRequest
	dir     *os.File
}

// claim is how much a session wants an upload that another has.
type takeover int

const (
	takeoverNever  takeover = iota // not at all
	takeoverSilent                 // if nothing comes from the other
	takeoverAlways                 // in any case
)

// hold gets an upload for one session. The one that has it may be told to give
// way.
func (u *Uploads) lock(ctx context.Context, id string, s *activeRequest, wants takeover) (*lockedUpload, error) {
	for {
		other, err := u.register(id, s)
		if err != nil {
			return nil, err
		}
		if other == nil {
			break
		}
		switch {
		case wants == takeoverNever:
			return nil, errBusy
		case wants == takeoverSilent && !other.isSilent(u.options.TakeoverTimeout):
			return nil, other.busyProblem()
		}
		if err := other.takeOver(ctx); err != nil {
			return nil, err
		}
	}
	h := &lockedUpload{uploads: u, id: id, request: s}
	if err := h.flock(); err != nil {
		h.unlock()
		return nil, err
	}
	return h, nil
}

// giveWay ends a session and waits until it has let go.
func (s *activeRequest) takeOver(ctx context.Context) error {
	s.interrupt(errTakenOver)
	long := takeoverWait
	if s.busyProblem() == errCompleting {
		long = completionWait
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return errBodyIncomplete // whoever wants it is gone
	case <-timer.C:
		return s.busyProblem()
	}
}

// busy is what others are told while a session has an upload.
func (s *activeRequest) busyProblem() *problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readingEnded {
		return errCompleting
	}
	return errBusy
}

// rouse ends the session that has an upload if it is silent, so that how much
// has come is certain.
func (u *Uploads) interruptSilent(ctx context.Context, id string) error {
	u.mu.Lock()
	s := u.active[id]
	u.mu.Unlock()
	if s == nil || !s.isSilent(u.options.TakeoverTimeout) {
		return nil
	}
	return s.takeOver(ctx)
}

// enter makes a session the one of an upload, or returns the one that is.
func (u *Uploads) register(id string, s *activeRequest) (*activeRequest, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing {
		return nil, errClosing
	}
	if other := u.active[id]; other != nil {
		return other, nil
	}
	u.active[id] = s
	return nil, nil
}

// flock keeps other processes out. Where a file system has no locks, only this
// process's own order counts.
func (h *lockedUpload) flock() error {
	d, err := h.uploads.root.Open(h.id)
	if errors.Is(err, os.ErrNotExist) {
		return errNotFound
	}
	if err != nil {
		return err
	}
	h.dir = d
	for {
		err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errBusy
		default:
			return nil
		}
	}
}

// release lets the next one have it.
func (h *lockedUpload) unlock() {
	if h.dir != nil {
		// Closing alone would not do at once: a child that is being started
		// has the file, too, until it is the other program.
		_ = syscall.Flock(int(h.dir.Fd()), syscall.LOCK_UN)
		h.dir.Close()
	}
	h.request.endReading()
	h.uploads.mu.Lock()
	delete(h.uploads.active, h.id)
	h.uploads.mu.Unlock()
	close(h.request.done)
}
