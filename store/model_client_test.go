package store_test

import (
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// step makes one random call.
func (m *concurrentClient) step() {
	ctx := m.t.Context()
	switch n := m.rng.IntN(100); {
	case n < 60:
		m.exchange(m.report)
	case n < 70:
		sub := m.newSubmission()
		if r, err := m.Submit(ctx, sub); m.check(err) {
			m.recordSubmitted(r, sub)
		}
	case n < 73:
		m.submitSharedRequest()
	case n < 76:
		m.submitAndRollBack()
	case n < 81:
		m.heartbeat()
	case n < 85:
		_, err := modelSweep(ctx, m.Engine, m.worker, &engine.OutageCredit{})
		m.check(err)
	case n < 87:
		_, err := m.ExpireWorkers(ctx, []store.ID{recentOf(m, &m.workers)})
		m.check(err)
	case n < 89:
		m.check(m.DeregisterWorker(ctx, m.worker))
		m.register()
	case n < 92:
		m.check(m.Cancel(ctx, recentOf(m, &m.tasks)))
	case n < 93:
		sub := m.newSubmission()
		if r, err := m.Override(ctx, []store.ID{recentOf(m, &m.tasks)}, sub); m.check(err) {
			m.recordSubmitted(r, sub)
		}
	case n < 94:
		m.delete()
	case n < 95:
		_, err := m.pool.Exec(ctx, "update "+modelPrefix(m.Graph())+"tasks set priority = $2 where id = $1",
			recentOf(m, &m.tasks), m.rng.IntN(3))
		m.check(err)
	case !m.noRetries:
		stage := ""
		if m.chance(50) {
			stage = pickStage(m)
		}
		retry := m.Retry
		if m.chance(30) {
			retry = m.RetryFresh
		}
		m.check(retry(ctx, recentOf(m, &m.tasks), stage))
	}
}

func pickStage(m *concurrentClient) string {
	all := m.Graph().Stages()
	return all[m.rng.IntN(len(all))]
}

// report returns a report of the claim with a random outcome.
func (m *concurrentClient) report(c engine.Claim) engine.Report {
	r := failed(c, time.Duration(m.rng.IntN(3))*5*time.Millisecond)
	switch n := m.rng.IntN(100); {
	case n < 65 && m.Graph().Divides(c.Stage) && c.Part == 0 && c.Parts == 0:
		return division(c, 1+m.rng.IntN(4))
	case n < 25 && c.Part == 0 && c.Parts > 0:
		return randomDivisionAgain(m.rng, c)
	case n < 70:
		return completed(c)
	case n < 85:
		r.Outcome = engine.Released
	default:
		r.Dead = c.Attempt >= modelAttempts || m.chance(20)
	}
	return r
}

// exchange reports some of the client's claims, and sometimes one that it does not hold.
func (m *concurrentClient) exchange(report func(engine.Claim) engine.Report) {
	n := m.Graph().Queues()
	all := slices.Repeat([]bool{true}, n)
	in := engine.ExchangeRequest{Worker: m.worker, FreeSlots: make([]int, n), ClaimFrom: all, PromoteDue: true}
	for i := range n {
		in.FreeSlots[i] = m.rng.IntN(3)
	}
	reported := make(map[store.ID]bool)
	for _, c := range m.held {
		if m.chance(80) {
			reported[c.Token] = true
			in.Reports = append(in.Reports, report(c))
		}
	}
	if old := recentOf(m, &m.claims); m.chance(20) && !reported[old.Token] && !old.Token.IsZero() {
		in.Reports = append(in.Reports, report(old))
	}
	out, err := m.Exchange(m.t.Context(), in)
	if !m.check(err) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recordAccepted(in.Reports, out)
	for _, c := range out.Claims {
		if m.tokens[c.Token] {
			m.t.Errorf("token %s was generated twice", c.Token)
		}
		m.tokens[c.Token] = true
	}
	m.claims = append(m.claims, out.Claims...)
	m.held = append(m.held, out.Claims...)
}

// recordAccepted records which reports were accepted. A claim has one outcome.
func (m *concurrentClient) recordAccepted(reports []engine.Report, out engine.ExchangeResult) {
	hasToken := func(token store.ID) func(engine.Report) bool {
		return func(r engine.Report) bool { return r.Token == token }
	}
	for _, r := range reports {
		if slices.ContainsFunc(out.Locked, hasToken(r.Token)) {
			continue
		}
		m.held = slices.DeleteFunc(m.held, func(c engine.Claim) bool { return c.Token == r.Token })
		if slices.ContainsFunc(out.Stale, func(s engine.StaleReport) bool { return s.Token == r.Token }) {
			continue
		}
		if before, again := m.accepted[r.Token]; again && before != r.Outcome {
			m.t.Errorf("claim %s was %s, and then %s", r.Token, before, r.Outcome)
		}
		m.accepted[r.Token] = r.Outcome
	}
}

// submitSharedRequest submits a request that other clients submit at the same time.
func (m *concurrentClient) submitSharedRequest() {
	sub := store.Submission{Source: "same", RequestID: "same-" + string(rune('a'+m.rng.IntN(26)))}
	r, err := m.Submit(m.t.Context(), sub)
	if !m.check(err) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, known := m.requests[sub.RequestID]; known && before != r.ID && !m.deleted[before] {
		m.t.Errorf("request %s is task %s and task %s", sub.RequestID, before, r.ID)
	}
	if m.requests[sub.RequestID] != r.ID {
		m.requests[sub.RequestID] = r.ID
		m.tasks = append(m.tasks, r.ID)
	}
}

func (m *concurrentClient) submitAndRollBack() {
	sub := m.newSubmission()
	rollBack := errors.New("roll back")
	err := pgx.BeginFunc(m.t.Context(), m.pool, func(tx pgx.Tx) error {
		if _, err := m.WithTx(tx).Submit(m.t.Context(), sub); err != nil {
			return err
		}
		return rollBack
	})
	if errors.Is(err, rollBack) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.rolledBack[sub.RequestID] = true
		return
	}
	m.check(err)
}

func (m *concurrentClient) heartbeat() {
	lost, err := modelHeartbeat(m.t.Context(), m.Engine, m.worker, m.held)
	if errors.Is(err, store.ErrWorkerUnknown) {
		m.register()
		return
	}
	if m.check(err) {
		m.held = slices.DeleteFunc(m.held, func(c engine.Claim) bool { return slices.Contains(lost, c.Token) })
	}
}

func (m *concurrentClient) delete() {
	id := recentOf(m, &m.tasks)
	m.mu.Lock()
	m.deleted[id] = true
	m.mu.Unlock()
	_, err := m.pool.Exec(m.t.Context(), "delete from "+modelPrefix(m.Graph())+"tasks where id = $1", id)
	m.check(err)
}
