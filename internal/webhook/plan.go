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

// endpoint is an enabled webhook.
type endpoint struct {
	id       store.ID
	url      string
	types    []string
	cooldown time.Duration
	cursor   int64 // the last event that was planned for it
}

const endpointsSQL = `
/* read webhooks */
select id, url, types, extract(epoch from cooldown)::float8, cursor
  from cuelight_webhooks where pipeline = $1 and disabled_at is null order by id`

func (w *Webhooks) endpoints(ctx context.Context) ([]endpoint, error) {
	return collect(ctx, w.db, func(row pgx.CollectableRow) (h endpoint, err error) {
		var cooldown float64
		err = row.Scan(&h.id, &h.url, &h.types, &cooldown, &h.cursor)
		h.cooldown = time.Duration(cooldown * float64(time.Second))
		return h, err
	}, "read webhooks", endpointsSQL, w.pipeline())
}

// plan contains the new deliveries of one webhook for the events up to upTo.
type plan struct {
	endpoint   endpoint
	upTo       int64
	deliveries []plannedDelivery
	cooldowns  map[string]*cooldown // to write, by alert subject
}

// plannedDelivery is a delivery that is not written yet.
type plannedDelivery struct {
	event      int64
	eventType  string
	task       store.ID
	stage      string
	payload    string
	suppressed bool
}

func (n plannedDelivery) isProgress() bool { return n.eventType == string(store.StageProgress) }

const maxEventsPerRead = 500

// splitByCursor returns the endpoints with the highest cursor, and some of the lagging
// ones: a random one and those ahead of it. So none waits until another has caught up.
func splitByCursor(endpoints []endpoint) (current, lagging []endpoint) {
	highest := slices.MaxFunc(endpoints, byCursor).cursor
	for _, h := range endpoints {
		if h.cursor == highest {
			current = append(current, h)
		} else {
			lagging = append(lagging, h)
		}
	}
	if len(lagging) == 0 {
		return current, nil
	}
	first := lagging[rand.IntN(len(lagging))].cursor
	return current, slices.DeleteFunc(lagging, func(h endpoint) bool { return h.cursor < first })
}

func byCursor(a, b endpoint) int { return cmp.Compare(a.cursor, b.cursor) }

// planDeliveries reads the events after the lowest cursor and plans their deliveries. It
// returns no plan for an endpoint that is ahead of them.
func (w *Webhooks) planDeliveries(ctx context.Context, endpoints []endpoint) (plans []plan, more bool, err error) {
	if len(endpoints) == 0 {
		return nil, false, nil
	}
	events, err := w.readEvents(ctx, endpoints)
	if err != nil || len(events) == 0 {
		return nil, false, err
	}
	p := planner{webhooks: w, tasks: map[store.ID]*taskData{}}
	for _, h := range endpoints {
		if h.cursor < events[len(events)-1].ID {
			p.plans = append(p.plans, plan{endpoint: h})
		}
	}
	planned, begun := 0, time.Now()
	for _, e := range events {
		// With a slow database, stop in time to renew the lease.
		if planned > 0 && time.Since(begun) >= w.options.leaseDuration/renewalsPerLease {
			break
		}
		if err := p.addEvent(ctx, e); err != nil {
			return nil, false, fmt.Errorf("prepare deliveries: %w", err)
		}
		planned++
	}
	plans = p.finish(events[planned-1].ID)
	return plans, len(plans) > 0 && (planned < len(events) || planned == maxEventsPerRead), nil
}

// readEvents returns the events after the lowest cursor. If they were deleted, it returns
// the oldest events.
func (w *Webhooks) readEvents(ctx context.Context, endpoints []endpoint) ([]store.Event, error) {
	q := store.EventQuery{After: slices.MinFunc(endpoints, byCursor).cursor, Limit: maxEventsPerRead}
	events, err := w.options.Store.Events(ctx, q)
	if errors.Is(err, store.ErrEventsGone) {
		q.After = 0
		if events, err = w.options.Store.Events(ctx, q); err == nil && len(events) > 0 {
			w.reportMissed(ctx, endpoints)
		}
	}
	return events, err
}

// reportMissed reports the endpoints whose next events may have been deleted.
func (w *Webhooks) reportMissed(ctx context.Context, endpoints []endpoint) {
	for _, h := range endpoints {
		_, err := w.options.Store.Events(ctx, store.EventQuery{After: h.cursor, Limit: 1})
		if errors.Is(err, store.ErrEventsGone) {
			w.options.OnDelivery(DeliveryResult{Webhook: h.id, Outcome: Missed})
		}
	}
}

// planner adds the events of one read to plans.
type planner struct {
	webhooks  *Webhooks
	plans     []plan
	tasks     map[store.ID]*taskData
	cooldowns map[cooldownKey]*cooldown // nil before the first alert
}

func (p *planner) addEvent(ctx context.Context, e store.Event) error {
	endpoints := make([]endpoint, len(p.plans))
	for i := range p.plans {
		endpoints[i] = p.plans[i].endpoint
	}
	alerts, err := p.webhooks.alertsOf(ctx, e, endpoints)
	if err != nil {
		return err
	}
	for i := range p.plans {
		to := &p.plans[i]
		if e.ID <= to.endpoint.cursor {
			continue // already planned
		}
		if to.endpoint.wantsEvent(e) {
			if err := p.addDelivery(ctx, to, e, string(e.Type), nil); err != nil {
				return err
			}
		}
		for _, alert := range alerts {
			if !to.endpoint.wantsAlert(alert) {
				continue
			}
			c, err := p.cooldown(ctx, to, alertSubject(alert, e))
			if err != nil {
				return err
			}
			if err := p.addDelivery(ctx, to, e, alert, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// addDelivery adds a delivery to a plan. For an alert, c decides whether it is suppressed.
func (p *planner) addDelivery(ctx context.Context, to *plan, e store.Event, eventType string, c *cooldown) error {
	task, err := p.taskData(ctx, e)
	if err != nil {
		return err
	}
	b := payload{Type: eventType, Timestamp: e.At.UTC(), Data: eventData{
		EventID: e.ID, Pipeline: p.webhooks.pipeline(), Task: task,
		Stage: e.Stage, Attempt: e.Attempt, Worker: e.Worker, Details: e.Data,
	}}
	admitted := true
	if c != nil {
		b.Data.Suppressed, admitted = c.admit(e.At, to.endpoint.cooldown)
	}
	to.deliveries = append(to.deliveries, plannedDelivery{
		event: e.ID, eventType: eventType, task: e.Task, stage: e.Stage, payload: b.encode(), suppressed: !admitted,
	})
	return nil
}

// taskData reads the task of an event once per planner.
func (p *planner) taskData(ctx context.Context, e store.Event) (*taskData, error) {
	id := e.Task
	if id.IsZero() {
		return nil, nil
	}
	if t, ok := p.tasks[id]; ok {
		return t, nil
	}
	data := &taskData{ID: id, UserContext: e.UserContext}
	switch t, err := p.webhooks.options.Store.Get(ctx, id); {
	case err == nil:
		data = publicTask(t)
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	p.tasks[id] = data
	return data, nil
}

// finish returns the plans of the endpoints whose cursor moves to upTo.
func (p *planner) finish(upTo int64) (plans []plan) {
	for _, one := range p.plans {
		if one.endpoint.cursor < upTo {
			one.upTo, one.deliveries = upTo, withoutOutdatedProgress(one.deliveries)
			plans = append(plans, one)
		}
	}
	return plans
}

// withoutOutdatedProgress keeps only the latest progress of each stage.
func withoutOutdatedProgress(deliveries []plannedDelivery) []plannedDelivery {
	type taskStage struct {
		task  store.ID
		stage string
	}
	seen := map[taskStage]bool{}
	var kept []plannedDelivery
	for _, n := range slices.Backward(deliveries) {
		s := taskStage{n.task, n.stage}
		if n.isProgress() && seen[s] {
			continue
		}
		seen[s] = seen[s] || n.isProgress()
		kept = append(kept, n)
	}
	slices.Reverse(kept)
	return kept
}
