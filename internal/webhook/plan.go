package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// hook is a webhook that is not disabled, as a deliverer needs it.
type endpoint struct {
	id       store.ID
	url      string
	types    []string
	cooldown time.Duration
	cursor   int64 // the last event that was looked at for it
}

const endpointsSQL = `
/* read webhooks */
select id, url, types, extract(epoch from cooldown)::float8, cursor
  from cuelight_webhooks where pipeline = $1 and disabled_at is null order by id`

func (w *Webhooks) endpoints(ctx context.Context) ([]endpoint, error) {
	rows, err := w.db.Query(ctx, endpointsSQL, w.options.Pipeline)
	if err != nil {
		return nil, fmt.Errorf("read webhooks: %w", err)
	}
	hooks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h endpoint, err error) {
		var cooldown float64
		err = row.Scan(&h.id, &h.url, &h.types, &cooldown, &h.cursor)
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
	endpoint   endpoint
	upTo       int64
	deliveries []plannedDelivery
	cooldowns  map[string]*cooldown
}

// planned is a delivery that is not written yet.
type plannedDelivery struct {
	event      int64
	eventType  string
	task       store.ID
	stage      string
	payload    string
	suppressed bool
}

// eventsMost is how many events are looked at in one go.
const maxEventsPerRead = 500

// apart divides webhooks into those that have seen the most, and those of the others
// whose turn it is: one of them, with whoever is further than that. So nobody waits
// until another has caught up.
func splitByCursor(hooks []endpoint) (front, turn []endpoint) {
	var rest []endpoint
	last := slices.MaxFunc(hooks, byCursor).cursor
	for _, h := range hooks {
		if h.cursor == last {
			front = append(front, h)
		} else {
			rest = append(rest, h)
		}
	}
	if len(rest) == 0 {
		return front, nil
	}
	first := rest[rand.IntN(len(rest))].cursor
	return front, slices.DeleteFunc(rest, func(h endpoint) bool { return h.cursor < first })
}

func byCursor(a, b endpoint) int { return cmp.Compare(a.cursor, b.cursor) }

// plans reads on in the outbox, from where the webhook is that is furthest behind,
// and says what is to be written for each. Others that are ahead of what was read
// have no plan.
func (w *Webhooks) planDeliveries(ctx context.Context, hooks []endpoint) (plans []plan, more bool, err error) {
	if len(hooks) == 0 {
		return nil, false, nil
	}
	events, err := w.readEvents(ctx, hooks)
	if err != nil || len(events) == 0 {
		return nil, false, err
	}
	p := planner{webhooks: w, tasks: map[store.ID]*taskData{}}
	for _, h := range hooks {
		if h.cursor < events[len(events)-1].ID {
			p.plans = append(p.plans, plan{endpoint: h})
		}
	}
	seen, begun := 0, time.Now()
	for _, e := range events {
		// Where the database is far away, a few at a time: the lease has to be renewed.
		if seen > 0 && time.Since(begun) >= w.options.leaseDuration/renewalsPerLease {
			break
		}
		if err := p.addEvent(ctx, e); err != nil {
			return nil, false, fmt.Errorf("prepare deliveries: %w", err)
		}
		seen++
	}
	plans = p.finish(events[seen-1].ID)
	return plans, len(plans) > 0 && (seen < len(events) || seen == maxEventsPerRead), nil
}

// upTo are the plans, all of whose events up to a place were looked at.
func (p *planner) finish(to int64) (plans []plan) {
	for _, one := range p.plans {
		if one.endpoint.cursor < to {
			one.upTo, one.deliveries = to, withoutOutdatedProgress(one.deliveries)
			plans = append(plans, one)
		}
	}
	return plans
}

// latest leaves out progress that later progress of the same stage makes void.
func withoutOutdatedProgress(rows []plannedDelivery) []plannedDelivery {
	type work struct {
		task  store.ID
		stage string
	}
	seen := map[work]bool{}
	var kept []plannedDelivery
	for _, r := range slices.Backward(rows) {
		w := work{r.task, r.stage}
		if r.isProgress() && seen[w] {
			continue
		}
		seen[w] = seen[w] || r.isProgress()
		kept = append(kept, r)
	}
	slices.Reverse(kept)
	return kept
}

func (r plannedDelivery) isProgress() bool { return r.eventType == string(store.StageProgress) }

// read is the events after the first that some webhook has not seen. Where they
// were deleted it goes on with the oldest there is.
func (w *Webhooks) readEvents(ctx context.Context, hooks []endpoint) ([]store.Event, error) {
	q := store.EventQuery{After: slices.MinFunc(hooks, byCursor).cursor, Limit: maxEventsPerRead}
	events, err := w.options.Store.Events(ctx, q)
	if errors.Is(err, store.ErrEventsGone) {
		q.After = 0
		if events, err = w.options.Store.Events(ctx, q); err == nil && len(events) > 0 {
			w.reportMissed(ctx, hooks)
		}
	}
	return events, err
}

// missed tells of those whose next events may have been deleted.
func (w *Webhooks) reportMissed(ctx context.Context, hooks []endpoint) {
	for _, h := range hooks {
		_, err := w.options.Store.Events(ctx, store.EventQuery{After: h.cursor, Limit: 1})
		if errors.Is(err, store.ErrEventsGone) {
			w.options.OnDelivery(DeliveryResult{Webhook: h.id, Outcome: Missed})
		}
	}
}

// planner fills plans with the events of one go.
type planner struct {
	webhooks  *Webhooks
	plans     []plan
	tasks     map[store.ID]*taskData
	cooldowns map[cooldownKey]*cooldown // nil before the first alert
}

func (p *planner) addEvent(ctx context.Context, e store.Event) error {
	hooks := make([]endpoint, len(p.plans))
	for i := range p.plans {
		hooks[i] = p.plans[i].endpoint
	}
	alerts, err := p.webhooks.alertsOf(ctx, e, hooks)
	if err != nil {
		return err
	}
	for i := range p.plans {
		to := &p.plans[i]
		if e.ID <= to.endpoint.cursor {
			continue // it was ahead of others
		}
		if to.endpoint.wantsEvent(e.Type) {
			if err := p.addDelivery(ctx, to, e, string(e.Type), nil); err != nil {
				return err
			}
		}
		for _, alert := range alerts {
			if !to.endpoint.wantsAlert(alert) {
				continue
			}
			q, err := p.cooldown(ctx, to, alertSubject(alert, e))
			if err != nil {
				return err
			}
			if err := p.addDelivery(ctx, to, e, alert, q); err != nil {
				return err
			}
		}
	}
	return nil
}

// tell adds one delivery; that of an alert q decides on.
func (p *planner) addDelivery(ctx context.Context, to *plan, e store.Event, typ string, q *cooldown) error {
	about, err := p.taskData(ctx, e.Task)
	if err != nil {
		return err
	}
	b := payload{Type: typ, Timestamp: e.At.UTC(), Data: eventData{
		EventID: e.ID, Pipeline: p.webhooks.options.Pipeline, Task: about,
		Stage: e.Stage, Attempt: e.Attempt, Worker: e.Worker, Details: e.Data,
	}}
	pass := true
	if q != nil {
		b.Data.Suppressed, pass = q.admit(e.At, to.endpoint.cooldown)
	}
	to.deliveries = append(to.deliveries, plannedDelivery{event: e.ID, eventType: typ, task: e.Task, stage: e.Stage, payload: b.encode(), suppressed: !pass})
	return nil
}

// facts are read once per task and go.
func (p *planner) taskData(ctx context.Context, id store.ID) (*taskData, error) {
	if id.IsZero() {
		return nil, nil
	}
	if f, ok := p.tasks[id]; ok {
		return f, nil
	}
	f := &taskData{ID: id}
	switch t, err := p.webhooks.options.Store.Get(ctx, id); {
	case err == nil:
		f = publicTask(t)
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	p.tasks[id] = f
	return f, nil
}
