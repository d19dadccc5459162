package remote

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// maxWait is the longest time for which a request waits.
const maxWait = 30 * time.Second

// ClassRefused is the error class, in the history, of an attempt whose result was refused.
const ClassRefused = "refused"

// Size limits of a progress note, of the class of an error, and of a result, in bytes.
const (
	maxNote   = 200
	maxClass  = 100
	maxResult = 16 << 20
)

// exchange applies reports and claims. Without anything to tell, it waits.
func (c *Coordinator) exchange(ctx context.Context, r request, in exchangeRequest) (out exchangeResponse, err error) {
	wait := time.Duration(0)
	if text := r.URL.Query().Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 {
			return out, problem.New(problem.InvalidRequest, "wait must be a duration, such as 30s")
		}
	}
	w, err := c.findWorker(ctx, in.Worker, r.principal)
	if err != nil {
		return out, err
	}
	free, err := c.freeSlots(in.FreeSlots)
	if err != nil {
		return out, err
	}
	out.Claims = []claimBody{}
	if err := c.exchangeNow(ctx, w, in.Reports, slots{free, in.Sequence}, &out); err != nil {
		return out, err
	}
	if len(in.Reports) == 0 && len(out.Claims) == 0 && wait > 0 {
		claims, err := c.waitForClaims(ctx, w, min(wait, maxWait), c.o.IsDirect(r.Request))
		if err != nil {
			return out, err
		}
		out.Claims = c.claimBodies(claims)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.controls = c.controlsOf(w)
	out.Control = w.controls
	return out, nil
}

// freeSlots returns the free slots of a request by stage. Slots of stages that remote workers may
// not do are an error, because the worker would wait for ever.
func (c *Coordinator) freeSlots(named map[string]int) ([]int, error) {
	free := make([]int, len(c.stages))
	for name, n := range named {
		stage, ok := c.graph.Stage(name)
		if !ok {
			return nil, unknownStage(name)
		}
		if n > 0 && !c.allows[stage] {
			return nil, problem.New(problem.Invalid, "remote workers do not work on stage %s; allowed: %s",
				name, strings.Join(c.o.Stages, ", "))
		}
		free[stage] = min(max(n, 0), 1000)
	}
	return free, nil
}

// slots are the free slots of a request, by stage, and its sequence. Without free it claims nothing,
// and the slots of the worker's last exchange remain valid.
type slots struct {
	free     []int
	sequence int64
}

// exchangeNow applies reports, and claims from stages that may have ready tasks.
func (c *Coordinator) exchangeNow(ctx context.Context, w *worker, bodies []reportBody, s slots, out *exchangeResponse) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	reports, err := c.reports(ctx, w, bodies, out)
	if err == nil {
		err = c.readPauses(ctx)
	}
	if err != nil {
		return err
	}
	return c.withTurn(ctx, w, func() error {
		free := s.free
		if free == nil {
			free = make([]int, len(c.stages))
			defer c.keepSlots(w)()
		}
		c.mu.Lock()
		if s.sequence != 0 && s.sequence < w.sequence {
			free = w.free // of a later request, which has overtaken this one
		}
		w.sequence = max(w.sequence, s.sequence)
		claimFrom, any := c.claimable(w, free)
		if c.closing {
			claimFrom, any = make([]bool, len(free)), false
		}
		if !any && len(reports) == 0 {
			w.free = free
			c.mu.Unlock()
			return nil
		}
		c.mu.Unlock()
		result, err := c.claimFor(ctx, w, reports, free, claimFrom)
		if err != nil {
			return err
		}
		c.recordAnswers(w, reports, result, out)
		signal(c.grantNow) // more may be ready
		return nil
	})
}

// keepSlots returns a function that sets the free slots of a worker to those of now.
func (c *Coordinator) keepSlots(w *worker) (restore func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := w.free
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		w.free = free
	}
}

// recordAnswers adds the database's answer to reports to the response.
func (c *Coordinator) recordAnswers(w *worker, reports []engine.Report, result engine.ExchangeResult, out *exchangeResponse) {
	out.Claims = c.claimBodies(result.Claims)
	retried := make(map[store.ID]bool)
	for _, r := range result.Locked {
		out.Retry = append(out.Retry, r.Token)
		retried[r.Token] = true
	}
	stale := make(map[store.ID]bool)
	c.mu.Lock()
	for _, r := range result.Stale {
		out.Stale = append(out.Stale, lostBody{r.Token, r.Cancelled})
		w.rememberLost(r.Token, r.Cancelled)
		stale[r.Token] = true
	}
	c.mu.Unlock()
	for _, r := range reports {
		if retried[r.Token] {
			continue
		}
		c.checks.forget(r.Token)
		if r.Class == ClassRefused && !stale[r.Token] {
			c.o.OnRefused(w.id, w.principal, strings.TrimPrefix(r.Error, refusedPrefix))
		}
	}
}

// reports turns what a worker says into reports of its own claims.
func (c *Coordinator) reports(ctx context.Context, w *worker, bodies []reportBody, out *exchangeResponse) ([]engine.Report, error) {
	bodies, tokens := firstOfEach(bodies, func(b reportBody) store.ID { return b.Token })
	claims, err := c.claimsOf(ctx, w, tokens)
	if err != nil {
		return nil, err
	}
	var reports []engine.Report
	for _, body := range bodies {
		claim, held := claims[body.Token]
		if !held {
			out.Stale = append(out.Stale, lostBody{body.Token, c.isCancelled(w, body.Token)})
			continue
		}
		report, err := c.report(ctx, w, claim, body)
		if errors.Is(err, errNotChecked) {
			out.Retry = append(out.Retry, body.Token)
			continue
		}
		if err != nil {
			return nil, err
		}
		reports = append(reports, report)
	}
	return reports, nil
}

// report is the report of one claim. The files of a completed stage are checked first.
func (c *Coordinator) report(ctx context.Context, w *worker, claim engine.Claim, body reportBody) (engine.Report, error) {
	report := engine.Report{Task: claim.Task, Stage: claim.Stage, Token: claim.Token, Outcome: body.Outcome}
	switch body.Outcome {
	case engine.Completed:
		result, err := c.checkOutput(ctx, claim, body.Result)
		var refused *RefusedError
		switch {
		case errors.As(err, &refused) && refused.IsTask:
			return c.failed(report, claim, reportBody{Error: refused.Reason, Class: "permanent", Permanent: true}), nil
		case errors.As(err, &refused):
			return c.refused(report, claim, refused.Reason), nil
		case err != nil:
			return report, err
		}
		if err := checkResult(result); err != nil {
			return c.failed(report, claim, reportBody{Error: "store result: " + err.Error(), Class: "permanent", Permanent: true}), nil
		}
		report.Result = result
		return report, nil
	case engine.Failed:
		return c.failed(report, claim, body), nil
	case engine.Released:
		report.Error, report.Class = redact.Text(body.Error, claim.Source), cleanText(body.Class, maxClass)
		if body.RetryIn != nil {
			report.RetryIn = seconds(*body.RetryIn)
		}
		return report, nil
	}
	return report, problem.New(problem.Invalid, "unknown outcome %q; allowed: completed, failed, released", body.Outcome)
}

// failed is the report of a failed attempt.
func (c *Coordinator) failed(report engine.Report, claim engine.Claim, body reportBody) engine.Report {
	report.Outcome = engine.Failed
	report.Error, report.Class = redact.Text(body.Error, claim.Source), cleanText(body.Class, maxClass)
	if report.Class == "" {
		report.Class = "error"
	}
	delay, again := c.o.Pipeline.RetryDelay(claim.Stage, claim.Attempt)
	if body.Permanent || !again {
		report.Dead = true
		return report
	}
	report.RetryIn = delay
	if body.RetryIn != nil {
		report.RetryIn = seconds(*body.RetryIn)
	}
	return report
}

// refusedPrefix begins the error of an attempt whose result was refused.
const refusedPrefix = "the result was refused: "

// sparedAttempts is by how many attempts a stage may exceed its limit because of refused results.
// A worker that delivers rubbish can thus not make a task dead before its key is disabled.
const sparedAttempts = 3

// refused is the report of an attempt whose result was refused.
func (c *Coordinator) refused(report engine.Report, claim engine.Claim, reason string) engine.Report {
	claim.Attempt = max(claim.Attempt-sparedAttempts, 1)
	return c.failed(report, claim, reportBody{Error: refusedPrefix + reason, Class: ClassRefused})
}

func checkResult(result json.RawMessage) error {
	switch {
	case len(result) > maxResult:
		return errors.New("it has more than 16 MiB")
	case len(result) > 0 && !json.Valid(result):
		return errors.New("it is not JSON")
	case strings.Contains(string(result), `\u0000`):
		return errors.New(`it contains \u0000`)
	}
	return nil
}

// waitForClaims waits until the coordinator has claims for the worker, or its controls change.
func (c *Coordinator) waitForClaims(ctx context.Context, w *worker, wait time.Duration, direct bool) ([]engine.Claim, error) {
	result := make(chan waitResult, 1)
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return nil, errClosing
	}
	c.answer(w, waitResult{}) // an older request of the worker
	w.wait = result
	c.waiting = append(c.waiting, w)
	c.updateControls(w, nil)
	c.mu.Unlock()
	signal(c.grantNow)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r := <-result:
		return r.claims, r.err
	case <-timer.C:
	case <-ctx.Done():
	}
	c.mu.Lock()
	if w.wait == result {
		c.answer(w, waitResult{})
	}
	w.lastRequest = time.Now()
	isEnd := ctx.Err() != nil && !c.closing && w.wait == nil
	c.mu.Unlock()
	r := <-result // it has been answered
	if isEnd && direct {
		c.disconnect(w)
	}
	return r.claims, r.err
}

// disconnect records that the connection of a worker has ended: it has store.DisconnectGrace to
// come back.
func (c *Coordinator) disconnect(w *worker) {
	c.mu.Lock()
	w.disconnected = true
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), renewTimeout)
	defer cancel()
	if err := c.engine.DisconnectWorker(ctx, w.id); err != nil {
		c.o.OnError(err)
	}
}

// endClaim reports the outcome of one claim, for workers that use no exchanges.
func (c *Coordinator) endClaim(outcome engine.Outcome) func(context.Context, request, reportBody) (noContent, error) {
	return func(ctx context.Context, r request, body reportBody) (noContent, error) {
		w, claim, err := c.requestClaim(ctx, r)
		if err != nil {
			return noContent{}, err
		}
		body.Token, body.Outcome = claim.Token, outcome
		var out exchangeResponse
		if err := c.exchangeNow(ctx, w, []reportBody{body}, slots{}, &out); err != nil {
			return noContent{}, err
		}
		switch {
		case len(out.Stale) > 0:
			return noContent{}, problem.New(problem.ClaimLost, "the claim %s was lost; nothing was recorded", claim.Token)
		case len(out.Retry) > 0:
			return noContent{}, problem.New(problem.Unavailable, "the task's row is locked, or its files are being checked; send it again").
				After(time.Second)
		}
		return noContent{}, nil
	}
}

// cleanText returns a text that the database can store, shortened to a number of bytes.
func cleanText(text string, most int) string {
	text = statement.CleanText(text)
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

var _ http.Handler = (*Coordinator)(nil)
