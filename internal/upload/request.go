package upload

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
)

// drainTimeout is how long the server may read the rest of a body that is not needed.
const drainTimeout = 5 * time.Second

// activeRequest is a request that may append to an upload. It moves the deadlines of its
// connection while data arrives, and other requests can interrupt it.
type activeRequest struct {
	control      *http.ResponseController // nil for CleanUp
	stallTimeout time.Duration
	done         chan struct{} // closed when it has unlocked the upload

	mu           sync.Mutex
	lastReceived time.Time
	deadlinesSet time.Time
	interruption *problem.Problem // nil if it was not interrupted
	bodyEnded    bool             // read until io.EOF
	readingEnded bool             // it cannot be interrupted any more
}

func newActiveRequest(control *http.ResponseController, stallTimeout time.Duration) *activeRequest {
	return &activeRequest{
		control: control, stallTimeout: stallTimeout, done: make(chan struct{}), lastReceived: time.Now(),
	}
}

// timedBody is a request's body that fails after StallTimeout without data.
type timedBody struct {
	io.Reader
	request *activeRequest
}

// Read extends the deadlines of the request and reads its body.
func (b timedBody) Read(p []byte) (int, error) {
	if err := b.request.extendDeadlines(); err != nil {
		return 0, err
	}
	n, err := b.Reader.Read(p)
	b.request.received(n, err)
	if err != nil && err != io.EOF {
		err = b.request.readError(err)
	}
	return n, err
}

// Close does nothing, because the server closes the body.
func (timedBody) Close() error { return nil }

// extendDeadlines moves the deadlines before a read. It does so at most once in a while,
// because each move costs time.
func (a *activeRequest) extendDeadlines() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	switch {
	case a.interruption != nil:
		return a.interruption
	case now.Sub(a.deadlinesSet) < min(time.Second, a.stallTimeout/8):
		return nil
	}
	a.deadlinesSet = now
	// The response gets its time after the body.
	err := errors.Join(
		a.control.SetReadDeadline(now.Add(a.stallTimeout)), a.control.SetWriteDeadline(now.Add(2*a.stallTimeout)))
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return errBodyIncomplete // the connection is closed
	}
	return nil
}

// received records the result of a read.
func (a *activeRequest) received(n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n > 0 {
		a.lastReceived = time.Now()
	}
	if errors.Is(err, io.EOF) {
		a.bodyEnded = true
	}
}

// readError returns the problem for an error of a read.
func (a *activeRequest) readError(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.interruption != nil:
		return a.interruption
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errStalled
	}
	return errBodyIncomplete
}

// endReading ends the reading of the body: the request cannot be interrupted any more, and
// has no deadline while the file is completed. Before the response, the server may read
// the rest of the body for a moment.
func (a *activeRequest) endReading() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.readingEnded || a.control == nil {
		return
	}
	a.readingEnded = true
	switch {
	case a.bodyEnded:
		_ = a.control.SetReadDeadline(time.Time{})
	case a.interruption == nil:
		_ = a.control.SetReadDeadline(time.Now().Add(drainTimeout))
	}
	_ = a.control.SetWriteDeadline(time.Time{})
}

// interrupt makes the request stop reading and respond with p.
func (a *activeRequest) interrupt(p *problem.Problem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.readingEnded || a.control == nil || a.interruption != nil {
		return
	}
	a.interruption = p
	_ = a.control.SetReadDeadline(time.Unix(1, 0)) // if unsupported, the next read returns p
}

// isSilent reports whether no data arrived for a duration.
func (a *activeRequest) isSilent(duration time.Duration) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.readingEnded && a.control != nil && time.Since(a.lastReceived) > duration
}

// busyProblem is the response to others while this request has locked the upload.
func (a *activeRequest) busyProblem() *problem.Problem {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.readingEnded {
		return errCompleting
	}
	return errBusy
}

// watchPrincipal interrupts the request if its principal is revoked, until stop is called.
func (u *Uploads) watchPrincipal(ctx context.Context, a *activeRequest) (stop func()) {
	if a.bodyEnded {
		return func() {} // there is no body
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(u.options.CheckPrincipalInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if errors.Is(u.options.CheckPrincipal(ctx), ErrRevoked) {
				a.interrupt(errRevoked)
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
