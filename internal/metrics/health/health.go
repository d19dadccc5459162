package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Check is a condition that must hold.
type Check struct {
	// Name is one word for the condition.
	Name string
	// Run returns nil if the condition holds, otherwise the reason. It should end
	// with its context. It may run on several goroutines, but never concurrently.
	Run func(context.Context) error
}

// Options say what a [Health] checks.
type Options struct {
	// Checks are the conditions. Without any, the status is pass.
	Checks []Check

	// Timeout is the timeout of a check. Default 2 s.
	Timeout time.Duration

	// MaxAge is how long results are cached. Default 1 s.
	MaxAge time.Duration

	// CanSeeReasons reports whether a request may see the reasons of failed checks, which
	// may name hosts and directories. Default nil: every request may.
	CanSeeReasons func(*http.Request) bool
}

// Status is the result of a check, or of all checks.
type Status string

// The values of Status.
const (
	// Pass means that nothing is wrong.
	Pass Status = "pass"
	// Fail means that a check returned an error or did not end in time.
	Fail Status = "fail"
)

// Report has the results of all checks.
type Report struct {
	Status Status    `json:"status"` // pass if all checks pass
	At     time.Time `json:"checked_at"`
	Checks []Result  `json:"checks"` // in the order of the Options
}

// Result is the result of a check.
type Result struct {
	Name    string  `json:"name"`
	Status  Status  `json:"status"`
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"` // duration
}

// Health runs checks and serves their results. Its methods may be called from several
// goroutines at once.
type Health struct {
	o      Options
	checks []*runner

	mu    sync.Mutex
	round *round // the latest, or nil
}

// round is one run of all checks.
type round struct {
	done   chan struct{} // closed when the report is set
	start  time.Time
	report Report
}

// New returns a Health, which runs no check yet.
func New(o Options) *Health {
	if o.Timeout <= 0 {
		o.Timeout = 2 * time.Second
	}
	if o.MaxAge <= 0 {
		o.MaxAge = time.Second
	}
	h := &Health{o: o}
	for _, c := range o.Checks {
		h.checks = append(h.checks, &runner{Check: c, timeout: o.Timeout})
	}
	return h
}

// Report runs the checks, or returns the results of the last second. Concurrent callers
// share a run, which does not end with ctx. Report takes no longer than the timeout.
func (h *Health) Report(ctx context.Context) Report {
	h.mu.Lock()
	r := h.round
	if r != nil && (!r.isOver() || time.Since(r.start) < h.o.MaxAge) {
		h.mu.Unlock()
		<-r.done
		return r.report
	}
	r = &round{done: make(chan struct{}), start: time.Now()}
	h.round = r
	h.mu.Unlock()
	r.report = h.run(context.WithoutCancel(ctx))
	close(r.done)
	return r.report
}

func (r *round) isOver() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (h *Health) run(ctx context.Context) Report {
	report := Report{Status: Pass, At: time.Now().UTC(), Checks: make([]Result, len(h.checks))}
	var all sync.WaitGroup
	for i, c := range h.checks {
		all.Go(func() { report.Checks[i] = c.result(ctx) })
	}
	all.Wait()
	for _, r := range report.Checks {
		if r.Status != Pass {
			report.Status = Fail
		}
	}
	return report
}

// ServeHTTP answers GET and HEAD with a [Report], and with status 200 if it passes or 503
// if it fails.
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	report := h.Report(r.Context())
	if h.o.CanSeeReasons != nil && !h.o.CanSeeReasons(r) {
		report = report.withoutReasons()
	}
	body, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if report.Status != Pass {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}

// withoutReasons is the report without the reasons of failures.
func (r Report) withoutReasons() Report {
	checks := make([]Result, len(r.Checks))
	for i, c := range r.Checks {
		c.Error = ""
		checks[i] = c
	}
	r.Checks = checks
	return r
}

// runner runs one check, never concurrently.
type runner struct {
	Check
	timeout time.Duration

	mu    sync.Mutex
	stuck bool // the last run has timed out and not returned
}

var errStuck = errors.New("the last run has not returned")

func (c *runner) result(ctx context.Context) Result {
	start := time.Now()
	err := c.check(ctx)
	r := Result{Name: c.Name, Status: Pass, Seconds: time.Since(start).Seconds()}
	if err != nil {
		r.Status, r.Error = Fail, err.Error()
	}
	return r
}

func (c *runner) check(ctx context.Context) error {
	c.mu.Lock()
	stuck := c.stuck
	c.stuck = true
	c.mu.Unlock()
	if stuck {
		return errStuck
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	result := make(chan error, 1)
	go func() {
		defer cancel()
		err := c.runRecovered(ctx)
		c.mu.Lock()
		c.stuck = false
		c.mu.Unlock()
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-result: // it returned at the timeout
		return err
	default:
		return fmt.Errorf("no answer within %s", c.timeout)
	}
}

// runRecovered turns a panic into a reason: a check must not end the process.
func (c *runner) runRecovered(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.Run(ctx)
}
