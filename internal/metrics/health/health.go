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

// Check is one thing that has to be so.
type Check struct {
	// Name says what, in a word.
	Name string
	// Run returns nil where it is so, and otherwise why not. It should heed its
	// context, and may be called by several goroutines, but not at once.
	Run func(context.Context) error
	// Within is how long it may take. Default that of the [Options].
	Within time.Duration
}

// Options say what a [Health] checks.
type Options struct {
	// Checks are what has to be so. Without any, everything is well.
	Checks []Check

	// Within is how long a check may take. Default 2 s.
	Within time.Duration

	// Keep is for how long what was found is good. Default 1 s.
	Keep time.Duration

	// Detail says who is told why a check failed; others are told only that it
	// did. Reasons may name hosts and directories. Default nil: everybody.
	Detail func(*http.Request) bool
}

// Status is whether something is so.
type Status string

// A check, and all of them together, pass or fail.
const (
	Pass Status = "pass"
	Fail Status = "fail"
)

// Report is what was found.
type Report struct {
	Status Status    `json:"status"` // pass if all do
	At     time.Time `json:"checked_at"`
	Checks []Result  `json:"checks"` // in the order of the Options
}

// Result is what a check found.
type Result struct {
	Name    string  `json:"name"`
	Status  Status  `json:"status"`
	Error   string  `json:"error,omitempty"`
	Seconds float64 `json:"seconds"` // it took
}

// Health runs checks. It is an http.Handler, and may be used by many goroutines at
// once.
type Health struct {
	o      Options
	checks []*runner

	mu    sync.Mutex
	round *round // the latest; nil for none
}

// round is one run of all checks.
type round struct {
	done   chan struct{} // closed once the rest is there
	began  time.Time
	report Report
}

// New returns a Health. It checks nothing until it is asked.
func New(o Options) *Health {
	if o.Within <= 0 {
		o.Within = 2 * time.Second
	}
	if o.Keep <= 0 {
		o.Keep = time.Second
	}
	h := &Health{o: o}
	for _, c := range o.Checks {
		if c.Within <= 0 {
			c.Within = o.Within
		}
		h.checks = append(h.checks, &runner{Check: c})
	}
	return h
}

// Report is what the checks find now, or found within the last second. Whoever
// asks while they run waits for them; so does whoever has them run, whatever
// becomes of ctx. It takes as long as the slowest check may.
func (h *Health) Report(ctx context.Context) Report {
	h.mu.Lock()
	r := h.round
	if r != nil && (!r.over() || time.Since(r.began) < h.o.Keep) {
		h.mu.Unlock()
		<-r.done
		return r.report
	}
	r = &round{done: make(chan struct{}), began: time.Now()}
	h.round = r
	h.mu.Unlock()
	r.report = h.run(context.WithoutCancel(ctx))
	close(r.done)
	return r.report
}

func (r *round) over() bool {
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

// ServeHTTP answers GET and HEAD with 200 where everything is well, else with 503,
// and with a [Report].
func (h *Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
		return
	}
	report := h.Report(r.Context())
	if h.o.Detail != nil && !h.o.Detail(r) {
		report = report.bare()
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
	_, _ = w.Write(append(body, '\n')) // whoever asked has gone
}

// bare is the report without reasons.
func (r Report) bare() Report {
	checks := make([]Result, len(r.Checks))
	for i, c := range r.Checks {
		c.Error = ""
		checks[i] = c
	}
	r.Checks = checks
	return r
}

// runner runs one check, never twice at once.
type runner struct {
	Check
	mu    sync.Mutex
	stuck bool // it was not waited for to the end, and has not come back
}

var errStuck = errors.New("has not come back since it was last asked")

func (c *runner) result(ctx context.Context) Result {
	began := time.Now()
	err := c.check(ctx)
	r := Result{Name: c.Name, Status: Pass, Seconds: time.Since(began).Seconds()}
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
	ctx, cancel := context.WithTimeout(ctx, c.Within)
	found := make(chan error, 1)
	go func() {
		defer cancel()
		err := c.guarded(ctx)
		c.mu.Lock()
		c.stuck = false
		c.mu.Unlock()
		found <- err
	}()
	select {
	case err := <-found:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-found: // it has come back by the end of its time
		return err
	default:
		return fmt.Errorf("no answer within %s", c.Within)
	}
}

// guarded makes of a panic a reason: a check is no reason to end the process.
func (c *runner) guarded(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.Run(ctx)
}
