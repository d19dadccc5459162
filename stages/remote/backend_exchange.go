package remote

import (
	"context"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// Exchange returns claims that the waiting request has brought, and otherwise asks the coordinator.
func (b clientBackend) Exchange(ctx context.Context, in engine.ExchangeRequest) (engine.ExchangeResult, error) {
	b.exchanging.Lock()
	defer b.exchanging.Unlock()
	out := b.newResult()
	b.mu.Lock()
	if len(in.Reports) == 0 && len(b.granted) > 0 {
		b.give(in, &out, nil)
		b.mu.Unlock()
		return out, nil
	}
	request := b.newExchange(b.freeSlots(in, b.granted))
	b.mu.Unlock()
	for _, r := range in.Reports {
		request.Reports = append(request.Reports, newReportBody(r))
	}
	var response exchangeResponse
	if err := b.call(ctx, http.MethodPost, "/exchange", request, &response); err != nil {
		return out, refusedForGood(err)
	}
	b.mu.Lock()
	claims, err := b.receive(request.Worker, response.Claims)
	if err == nil {
		b.give(in, &out, claims)
	}
	b.mu.Unlock()
	if err != nil {
		return out, err
	}
	b.setControls(response.Control)
	b.answerReports(in.Reports, response, &out)
	return out, nil
}

func (b clientBackend) newResult() engine.ExchangeResult {
	n := b.o.Graph.Queues()
	out := engine.ExchangeResult{
		Claimed: make([]int, n), MoreReady: make([]bool, n), Next: make([]engine.Position, n), Wait: make([]time.Duration, n),
		NextDue: -1, // the coordinator knows
	}
	for i := range out.Wait {
		out.Wait[i] = -1
	}
	return out
}

// freeSlots returns the free slots of a request, without those of claims that are on their way. It has none to
// divide and to join: workers with the database do that.
func (b clientBackend) freeSlots(in engine.ExchangeRequest, granted []engine.Claim) map[string]int {
	free := make(map[string]int)
	for i, name := range b.stages {
		if n := in.FreeSlots[b.o.Graph.WorkQueue(i)]; n > 0 {
			free[name] = n
		}
	}
	for _, claim := range granted {
		free[b.stages[claim.Stage]]--
	}
	return free
}

// give adds claims to a result, also those that the waiting request has brought, until now: they take slots, too. The lock is
// held.
func (b clientBackend) give(in engine.ExchangeRequest, out *engine.ExchangeResult, claims []engine.Claim) {
	out.Claims = append(b.granted, claims...)
	b.granted = nil
	for _, claim := range out.Claims {
		out.Claimed[b.o.Graph.WorkQueue(claim.Stage)]++
	}
	b.free = b.freeSlots(in, out.Claims)
}

// answerReports tells the dispatcher what became of its reports.
func (b clientBackend) answerReports(reports []engine.Report, response exchangeResponse, out *engine.ExchangeResult) {
	stale, retry := make(map[store.ID]lostBody), make(map[store.ID]bool)
	for _, s := range response.Stale {
		stale[s.Token] = s
	}
	for _, token := range response.Retry {
		retry[token] = true
	}
	checking := make(map[store.ID]float64)
	for _, body := range response.Checking {
		checking[body.Token] = body.RetryIn
	}
	refused := make(map[store.ID]refusedBody)
	for _, body := range response.Refused {
		refused[body.Token] = body
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range reports {
		if s, ok := stale[r.Token]; ok {
			out.Stale = append(out.Stale, engine.StaleReport{Report: r, Cancelled: s.Cancelled})
		}
		if body, ok := refused[r.Token]; ok {
			r.Outcome, r.Result, r.Error, r.Class = engine.Failed, nil, body.Error, ClassRefused
			r.Dead, r.RetryIn = body.Dead, seconds(body.RetryIn)
			out.Refused = append(out.Refused, r)
		}
		if retry[r.Token] {
			out.Locked = append(out.Locked, r)
			continue
		}
		if pause, ok := checking[r.Token]; ok {
			out.Checking = append(out.Checking, engine.CheckingReport{Report: r, Pause: max(seconds(pause), time.Second)})
			continue
		}
		b.forget(r.Token)
	}
}

func newReportBody(r engine.Report) reportBody {
	body := reportBody{
		Token: r.Token, Task: r.Task, Outcome: r.Outcome, Result: r.Result, Error: r.Error, Class: r.Class, Permanent: r.Dead,
	}
	if !r.Dead {
		in := r.RetryIn.Seconds()
		body.RetryIn = &in
	}
	return body
}
