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
	giveWay = 10 * time.Second
	// letGo is how long it waits for one that has all, and may be at work with it for
	// minutes, or about to end.
	letGo = time.Second
	// linger is how long the rest of a body may take that nobody wants.
	linger = 5 * time.Second
)

// session is one request's turn with an upload.
type session struct {
	control *http.ResponseController // nil: no request, but Tidy
	stall   time.Duration
	done    chan struct{} // closed when it is over

	mu      sync.Mutex
	heard   time.Time // when something came last
	set     time.Time // when the deadlines were moved last
	why     *refusal  // it was told to end
	ended   bool      // the body was read to its end
	settled bool      // it reads no more, and is not to be disturbed
}

func newSession(control *http.ResponseController, stall time.Duration) *session {
	return &session{control: control, stall: stall, done: make(chan struct{}), heard: time.Now()}
}

// interrupt makes the request stop reading, and answer why.
func (s *session) interrupt(why *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled || s.control == nil || s.why != nil {
		return
	}
	s.why = why
	_ = s.control.SetReadDeadline(time.Unix(1, 0)) // unsupported: it ends by itself
}

// silent reports whether nothing has come for so long.
func (s *session) silent(long time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.settled && s.control != nil && time.Since(s.heard) > long
}

// expect moves the deadlines before something is read. Moving them again and
// again within a moment would only cost time.
func (s *session) expect() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now()
	switch {
	case s.why != nil:
		return s.why
	case at.Sub(s.set) < min(time.Second, s.stall/8):
		return nil
	}
	s.set = at
	// The answer has its time after the body.
	err := errors.Join(s.control.SetReadDeadline(at.Add(s.stall)), s.control.SetWriteDeadline(at.Add(2*s.stall)))
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return errBrokenOff // it is a connection no more
	}
	return nil
}

// watch interrupts a session of whose principal Options.Still says that it is revoked,
// until stop is called.
func (u *Uploads) watch(ctx context.Context, s *session) (stop func()) {
	if s.ended {
		return func() {} // there is no body to wait for
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		again := time.NewTicker(u.o.AskEvery)
		defer again.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			if errors.Is(u.o.Still(ctx), ErrRevoked) {
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
func (s *session) settle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled || s.control == nil {
		return
	}
	s.settled = true
	switch {
	case s.ended:
		_ = s.control.SetReadDeadline(time.Time{})
	case s.why == nil:
		_ = s.control.SetReadDeadline(time.Now().Add(linger))
	}
	_ = s.control.SetWriteDeadline(time.Time{})
}

// readError is what an error of the body's means for the client.
func (s *session) readError(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.why != nil:
		return s.why
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errStalled
	}
	return errBrokenOff
}

// came notes that the client is alive, and whether it has said all.
func (s *session) came(n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > 0 {
		s.heard = time.Now()
	}
	if errors.Is(err, io.EOF) {
		s.ended = true
	}
}

// held is an upload that nobody else touches.
type held struct {
	u    *Uploads
	id   string
	s    *session
	lock *os.File
}

// claim is how much a session wants an upload that another has.
type claim int

const (
	ifFree   claim = iota // not at all
	ifSilent              // if nothing comes from the other
	now                   // in any case
)

// hold gets an upload for one session. The one that has it may be told to give
// way.
func (u *Uploads) hold(ctx context.Context, id string, s *session, wants claim) (*held, error) {
	for {
		other, err := u.enter(id, s)
		if err != nil {
			return nil, err
		}
		if other == nil {
			break
		}
		switch {
		case wants == ifFree:
			return nil, errBusy
		case wants == ifSilent && !other.silent(u.o.Silence):
			return nil, other.busy()
		}
		if err := other.giveWay(ctx); err != nil {
			return nil, err
		}
	}
	h := &held{u: u, id: id, s: s}
	if err := h.flock(); err != nil {
		h.release()
		return nil, err
	}
	return h, nil
}

// giveWay ends a session and waits until it has let go.
func (s *session) giveWay(ctx context.Context) error {
	s.interrupt(errTakenOver)
	long := giveWay
	if s.busy() == errCompleting {
		long = letGo
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return errBrokenOff // whoever wants it is gone
	case <-timer.C:
		return s.busy()
	}
}

// busy is what others are told while a session has an upload.
func (s *session) busy() *refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled {
		return errCompleting
	}
	return errBusy
}

// rouse ends the session that has an upload if it is silent, so that how much
// has come is certain.
func (u *Uploads) rouse(ctx context.Context, id string) error {
	u.mu.Lock()
	s := u.live[id]
	u.mu.Unlock()
	if s == nil || !s.silent(u.o.Silence) {
		return nil
	}
	return s.giveWay(ctx)
}

// enter makes a session the one of an upload, or returns the one that is.
func (u *Uploads) enter(id string, s *session) (*session, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closing {
		return nil, errClosing
	}
	if other := u.live[id]; other != nil {
		return other, nil
	}
	u.live[id] = s
	return nil, nil
}

// flock keeps other processes out. Where a file system has no locks, only this
// process's own order counts.
func (h *held) flock() error {
	d, err := h.u.root.Open(h.id)
	if errors.Is(err, os.ErrNotExist) {
		return errNoUpload
	}
	if err != nil {
		return err
	}
	h.lock = d
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
func (h *held) release() {
	if h.lock != nil {
		// Closing alone would not do at once: a child that is being started
		// has the file, too, until it is the other program.
		_ = syscall.Flock(int(h.lock.Fd()), syscall.LOCK_UN)
		h.lock.Close()
	}
	h.s.settle()
	h.u.mu.Lock()
	delete(h.u.live, h.id)
	h.u.mu.Unlock()
	close(h.s.done)
}
