package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// hook is a webhook that is not disabled, as a deliverer needs it.
type hook struct {
	id       store.ID
	url      string
	types    []string
	secrets  []string // that sign
	cooldown time.Duration
	cursor   int64 // the last event that was looked at for it
}

const hooksSQL = `
/* read webhooks */
select id, url, types, array_remove(array[secret, case when old_until > now() then old_secret end], null),
       extract(epoch from cooldown)::float8, cursor
  from cuelight_webhooks where pipeline = $1 and disabled_at is null order by id`

func (w *Webhooks) hooks(ctx context.Context) ([]hook, error) {
	rows, err := w.db.Query(ctx, hooksSQL, w.o.Pipeline)
	if err != nil {
		return nil, fmt.Errorf("read webhooks: %w", err)
	}
	hooks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h hook, err error) {
		var cooldown float64
		err = row.Scan(&h.id, &h.url, &h.types, &h.secrets, &cooldown, &h.cursor)
		h.cooldown = time.Duration(cooldown * float64(time.Second))
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("read webhooks: %w", err)
	}
	return hooks, nil
}

// plan is what one webhook is to be told of the events up to a place.
type plan struct {
	hook  hook
	to    int64
	rows  []planned
	quiet map[string]*quiet
}

// planned is a delivery that is not written yet.
type planned struct {
	event      int64
	typ        string
	task       store.ID
	payload    string
	suppressed bool
}

// eventsMost is how many events are looked at in one go.
const eventsMost = 500

// plans reads on in the outbox, from where the webhook is that is furthest behind,
// and says what is to be written for each. Others that are ahead of what was read
// have no plan.
func (w *Webhooks) plans(ctx context.Context, hooks []hook) (plans []plan, more bool, err error) {
	if len(hooks) == 0 {
		return nil, false, nil
	}
	events, err := w.read(ctx, hooks)
	if err != nil || len(events) == 0 {
		return nil, false, err
	}
	p := planner{w: w, tasks: map[store.ID]*facts{}}
	for _, h := range hooks {
		if h.cursor < events[len(events)-1].ID {
			p.plans = append(p.plans, plan{hook: h})
		}
	}
	seen, begun := 0, time.Now()
	for _, e := range events {
		// Where the database is far away, a few at a time: the lease has to be renewed.
		if seen > 0 && time.Since(begun) >= w.o.lease/renewParts {
			break
		}
		if err := p.add(ctx, e); err != nil {
			return nil, false, fmt.Errorf("prepare deliveries: %w", err)
		}
		seen++
	}
	return p.upTo(events[seen-1].ID), seen < len(events) || seen == eventsMost, nil
}

// upTo are the plans, all of whose events up to a place were looked at.
func (p *planner) upTo(to int64) (plans []plan) {
	for _, one := range p.plans {
		if one.hook.cursor < to {
			one.to = to
			plans = append(plans, one)
		}
	}
	return plans
}

// read is the events after the first that some webhook has not seen. Where they
// were deleted it goes on with the oldest there is.
func (w *Webhooks) read(ctx context.Context, hooks []hook) ([]store.Event, error) {
	behind := slices.MinFunc(hooks, func(a, b hook) int { return int(min(max(a.cursor-b.cursor, -1), 1)) })
	q := store.EventQuery{After: behind.cursor, Limit: eventsMost}
	events, err := w.o.Store.Events(ctx, q)
	if errors.Is(err, store.ErrEventsGone) {
		q.After = 0
		if events, err = w.o.Store.Events(ctx, q); err == nil && len(events) > 0 {
			w.o.Observe(Observation{Webhook: behind.id, Outcome: Missed})
		}
	}
	return events, err
}

// planner fills plans with the events of one go.
type planner struct {
	w      *Webhooks
	plans  []plan
	tasks  map[store.ID]*facts
	quiets map[quietKey]*quiet // nil before the first alert
}

type quietKey struct {
	hook store.ID
	kind string
}

func (p *planner) add(ctx context.Context, e store.Event) error {
	hooks := make([]hook, len(p.plans))
	for i := range p.plans {
		hooks[i] = p.plans[i].hook
	}
	alerts, err := p.w.alerts(ctx, e, hooks)
	if err != nil {
		return err
	}
	for i := range p.plans {
		to := &p.plans[i]
		if e.ID <= to.hook.cursor {
			continue // it was ahead of others
		}
		if to.hook.wants(e.Type) {
			if err := p.tell(ctx, to, e, string(e.Type), nil); err != nil {
				return err
			}
		}
		for _, alert := range alerts {
			if !to.hook.wantsAlert(alert) {
				continue
			}
			q, err := p.quiet(ctx, to, alert)
			if err != nil {
				return err
			}
			if err := p.tell(ctx, to, e, alert, q); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell adds one delivery; that of an alert q decides on.
func (p *planner) tell(ctx context.Context, to *plan, e store.Event, typ string, q *quiet) error {
	about, err := p.facts(ctx, e.Task)
	if err != nil {
		return err
	}
	b := body{Type: typ, Timestamp: e.At.UTC(), Data: data{
		Event: e.ID, Pipeline: p.w.o.Pipeline, Task: about,
		Stage: e.Stage, Attempt: e.Attempt, Worker: e.Worker, Details: e.Data,
	}}
	pass := true
	if q != nil {
		b.Data.Suppressed, pass = q.pass(e.At, to.hook.cooldown)
	}
	to.rows = append(to.rows, planned{event: e.ID, typ: typ, task: e.Task, payload: b.text(), suppressed: !pass})
	return nil
}

// facts are read once per task and go.
func (p *planner) facts(ctx context.Context, id store.ID) (*facts, error) {
	if id.IsZero() {
		return nil, nil
	}
	if f, ok := p.tasks[id]; ok {
		return f, nil
	}
	f := &facts{ID: id}
	switch t, err := p.w.o.Store.Get(ctx, id); {
	case err == nil:
		f = publicFacts(t)
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	p.tasks[id] = f
	return f, nil
}

const quietSQL = `
/* read cooldowns */
select webhook_id, subject, until, suppressed from cuelight_quiet where webhook_id = any($1::uuid[])`

// quiet is how a kind of alert stands with a webhook. What is read here cannot
// change before it is written: only the holder of the lease writes it.
func (p *planner) quiet(ctx context.Context, to *plan, kind string) (*quiet, error) {
	if p.quiets == nil {
		if err := p.readQuiets(ctx); err != nil {
			return nil, err
		}
	}
	key := quietKey{to.hook.id, kind}
	q := p.quiets[key]
	if q == nil {
		q = &quiet{}
		p.quiets[key] = q
	}
	if to.quiet == nil {
		to.quiet = map[string]*quiet{}
	}
	to.quiet[kind] = q
	return q, nil
}

func (p *planner) readQuiets(ctx context.Context) error {
	var ids []store.ID
	for _, to := range p.plans {
		ids = append(ids, to.hook.id)
	}
	rows, err := p.w.db.Query(ctx, quietSQL, ids)
	if err != nil {
		return err
	}
	quiets := map[quietKey]*quiet{}
	var key quietKey
	var q quiet
	_, err = pgx.ForEachRow(rows, []any{&key.hook, &key.kind, &q.until, &q.suppressed}, func() error {
		read := q
		quiets[key] = &read
		return nil
	})
	p.quiets = quiets
	return err
}
