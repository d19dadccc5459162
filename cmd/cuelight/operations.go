package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/trace"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
	"github.com/cuelight/cuelight/web/ui"
)

// operations are what people do by the dashboard: each leaves an entry in the audit,
// in the same transaction.
type operations struct{ st *store.Store }

// do runs an act of the principal of ctx, which must have the scope. The act says
// what it was done to.
func (o operations) do(ctx context.Context, need access.Scope, action string, detail map[string]any, act func(in *store.Store) (target string, err error)) error {
	if err := access.Check(ctx, need); err != nil {
		return fmt.Errorf("%w: %w", ui.ErrForbidden, err)
	}
	return o.st.WithAudit(ctx, func(in *store.Store) (store.AuditEntry, error) {
		target, err := act(in)
		if err != nil {
			return store.AuditEntry{}, err
		}
		e := store.AuditEntry{Actor: access.From(ctx).Name, Action: action, Target: target}
		if len(detail) > 0 {
			e.Detail, err = json.Marshal(detail)
		}
		return e, err
	})
}

func (o operations) Submit(ctx context.Context, s store.Submission) (id store.ID, err error) {
	if err := checkSource(ctx, s.Source); err != nil {
		return id, err
	}
	s.SubmittedBy = access.From(ctx).Submitter()
	s.Traceparent = cmp.Or(s.Traceparent, trace.Traceparent(ctx))
	err = o.do(ctx, access.Submit, "submit", map[string]any{"source": shownSource(s.Source)}, func(in *store.Store) (string, error) {
		r, err := in.Submit(ctx, s)
		id = r.ID
		return id.String(), err
	})
	return id, err
}

// checkSource says what the principal of ctx may have videos made of.
func checkSource(ctx context.Context, source string) error {
	err := web.CheckSource(access.From(ctx), source)
	if errors.Is(err, access.ErrScope) {
		return fmt.Errorf("%w: %w", ui.ErrForbidden, err)
	}
	return err
}

func (o operations) Override(ctx context.Context, old store.ID, by store.Submission) (id store.ID, err error) {
	if err := checkSource(ctx, by.Source); err != nil {
		return id, err
	}
	by.SubmittedBy = access.From(ctx).Submitter()
	by.Traceparent = cmp.Or(by.Traceparent, trace.Traceparent(ctx))
	detail := map[string]any{"source": shownSource(by.Source)}
	err = o.do(ctx, access.Admin, "override", detail, func(in *store.Store) (string, error) {
		r, err := in.Override(ctx, []store.ID{old}, by)
		id, detail["by"] = r.ID, r.ID
		return old.String(), err
	})
	return id, err
}

func (o operations) Retry(ctx context.Context, id store.ID, from string) error {
	return o.do(ctx, access.Admin, "retry", map[string]any{"from": from}, func(in *store.Store) (string, error) {
		return id.String(), in.Retry(ctx, id, from)
	})
}

func (o operations) RetryDead(ctx context.Context, f report.DeadFilter, how store.RetryAllOptions) (store.RetryAllResult, error) {
	if err := access.Check(ctx, access.Admin); err != nil {
		return store.RetryAllResult{}, fmt.Errorf("%w: %w", ui.ErrForbidden, err)
	}
	written := f
	written.Source = redact.Filter(f.Source)
	how.Audit = func(tasks int) (store.AuditEntry, error) {
		detail, err := json.Marshal(map[string]any{"filter": written, "tasks": tasks})
		return store.AuditEntry{Actor: access.From(ctx).Name, Action: "retry_dead", Detail: detail}, err
	}
	tasks, err := report.New(o.st.DB(), o.st.Graph()).FindDead(ctx, f)
	if err != nil {
		return store.RetryAllResult{}, err
	}
	return o.st.RetryDead(ctx, tasks, how)
}

func (o operations) Cancel(ctx context.Context, id store.ID) error {
	return o.do(ctx, access.Admin, "cancel", nil, func(in *store.Store) (string, error) { return id.String(), in.Cancel(ctx, id) })
}

func (o operations) Pause(ctx context.Context, p store.Pause) error {
	p.By = access.From(ctx).Name
	return o.do(ctx, access.Admin, "pause", nil, func(in *store.Store) (string, error) { return pauseTarget(p), in.Pause(ctx, p) })
}

func (o operations) Resume(ctx context.Context, p store.Pause) error {
	return o.do(ctx, access.Admin, "resume", nil, func(in *store.Store) (string, error) {
		was, err := in.Resume(ctx, p)
		if err == nil && !was {
			err = fmt.Errorf("%w: %s is not paused", store.ErrNotFound, pauseTarget(p))
		}
		return pauseTarget(p), err
	})
}

func (o operations) DrainWorker(ctx context.Context, worker store.ID) error {
	return o.do(ctx, access.Admin, "drain", nil, func(in *store.Store) (string, error) { return worker.String(), in.DrainWorker(ctx, worker) })
}
