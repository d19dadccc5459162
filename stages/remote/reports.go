package remote

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// ClassRefused is the error class, in the history, of an attempt whose result was refused.
const ClassRefused = "refused"

// classElsewhere is the error class of ErrOutputsElsewhere in the history. After elsewhereDelay the stage
// can be claimed again: behind a load balancer that spreads the files of an attempt it never ends well.
const (
	classElsewhere = "outputs-elsewhere"
	elsewhereDelay = 10 * time.Second
)

// Size limits of a progress note, of the class of an error, and of a result, in bytes.
const (
	maxNote   = 200
	maxClass  = 100
	maxResult = 16 << 20
)

// recordAnswers adds the database's answer to reports to the response.
func (c *Coordinator) recordAnswers(w *worker, reports []engine.Report, result engine.ExchangeResult, out *exchangeResponse) {
	out.Claims = append(out.Claims, c.claimBodies(result.Claims)...)
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
	out.Refused = slices.DeleteFunc(out.Refused, func(r refusedBody) bool { return stale[r.Token] || retried[r.Token] })
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
	recorded, err := c.recordedBefore(ctx, claims, bodies)
	if err != nil {
		return nil, err
	}
	for _, body := range bodies { // at the same time
		claim, held := claims[body.Token]
		if held && body.Outcome == engine.Completed && c.o.Files != nil && len(body.Result) <= maxResult {
			c.startCheck(claim, body.Result)
		}
	}
	var reports []engine.Report
	for _, body := range bodies {
		claim, held := claims[body.Token]
		if recorded[body.Token] {
			continue
		}
		if !held {
			out.Stale = append(out.Stale, lostBody{body.Token, c.isCancelled(w, body.Token)})
			continue
		}
		report, err := c.report(ctx, w, claim, body)
		if errors.Is(err, errNotChecked) {
			out.Checking = append(out.Checking, checkingBody{body.Token, checkPause.Seconds()})
			c.recordWhenChecked(w, body)
			continue
		}
		if err != nil {
			return nil, err
		}
		if body.Outcome == engine.Completed && report.Outcome != engine.Completed {
			out.Refused = append(out.Refused, refusedBody{report.Token, report.Error, report.Dead, report.RetryIn.Seconds()})
		}
		reports = append(reports, report)
	}
	if ctx.Err() != nil { // the worker is gone: this exchange records nothing
		for _, body := range bodies {
			c.recordWhenChecked(w, body)
		}
	}
	return reports, nil
}

// recordedBefore returns the tokens of reports that the history contains: the worker sends them again
// because it got no answer. It asks the database if the worker does not hold the claims.
func (c *Coordinator) recordedBefore(
	ctx context.Context, claims map[store.ID]engine.Claim, bodies []reportBody,
) (map[store.ID]bool, error) {
	var reports []engine.Report
	for _, body := range bodies {
		if _, held := claims[body.Token]; !held && !body.Task.IsZero() {
			reports = append(reports, engine.Report{Task: body.Task, Token: body.Token, Outcome: body.Outcome})
		}
	}
	if len(reports) == 0 {
		return nil, nil
	}
	return c.engine.FindRecordedOutcomes(ctx, reports)
}

// report is the report of one claim. The files of a completed stage are checked first.
func (c *Coordinator) report(ctx context.Context, w *worker, claim engine.Claim, body reportBody) (engine.Report, error) {
	report := engine.Report{Task: claim.Task, Stage: claim.Stage, Part: claim.Part, Token: claim.Token, Outcome: body.Outcome}
	switch body.Outcome {
	case engine.Completed:
		result, err := c.checkOutput(ctx, claim, body.Result)
		var refused *RefusedError
		switch {
		case errors.As(err, &refused) && refused.IsTask:
			return c.failed(report, claim, reportBody{Error: refused.Reason, Class: "permanent", Permanent: true}), nil
		case errors.As(err, &refused):
			return c.refused(report, claim, refused.Reason), nil
		case errors.Is(err, ErrOutputsElsewhere):
			report.Outcome, report.Error, report.Class = engine.Released, ErrOutputsElsewhere.Error(), classElsewhere
			report.RetryIn = elsewhereDelay
			return report, nil
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
			report.RetryIn = min(seconds(*body.RetryIn), maxRetryIn)
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
		report.RetryIn = min(seconds(*body.RetryIn), max(maxRetryIn, delay))
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
	claim.Attempt = max(claim.Attempt-sparedAttempts, 0) // 0 has another attempt, whatever the limit
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

// cleanText returns a text that the database can store, shortened to a number of bytes.
func cleanText(text string, most int) string {
	text = statement.CleanText(text)
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
