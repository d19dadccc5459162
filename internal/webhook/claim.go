package webhook

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// dueDelivery is a delivery to send. Its URL and secrets are those of the moment of the
// claim, so a replaced secret signs nothing more.
type dueDelivery struct {
	id        store.ID
	webhook   store.ID
	url       string
	format    string
	secrets   []string
	eventType string
	payload   string
	attempts  int
}

// claimSQL returns due deliveries: for each webhook at most its free slots, and in total
// at most $4, distributed evenly. It excludes an event while its task has an earlier one
// pending.
const claimSQL = `
/* claim deliveries */
select d.id, d.webhook_id, h.url, h.format,
       array_remove(array[h.secret, case when h.old_until > now() then h.old_secret end], null),
       d.type, d.payload, d.attempts
  from unnest($1::uuid[], $2::int[]) as w (id, free)
  join cuelight_webhooks h on h.id = w.id and h.disabled_at is null
 cross join lateral (
       select due.*, row_number() over (order by due.run_at, due.event_id) as rank
         from (select d.id, d.webhook_id, d.type, d.payload, d.attempts, d.run_at, d.event_id
                 from cuelight_deliveries d
                where d.webhook_id = w.id and d.status = 'pending' and d.run_at <= now()
                  and d.id <> all ($3::uuid[])
                  and not exists (select from cuelight_deliveries e
                                   where e.webhook_id = d.webhook_id and e.task_id = d.task_id
                                     and e.status = 'pending' and e.event_id < d.event_id)
                order by d.run_at, d.event_id
                limit w.free) as due) as d
 order by d.rank, random()
 limit $4`

// sendDue starts as many calls as there are free slots.
func (d *deliverer) sendDue(ctx, callCtx context.Context, endpoints []endpoint) error {
	ids, free, total := d.freeSlots(endpoints)
	if len(ids) == 0 {
		return nil
	}
	due, err := collect(ctx, d.webhooks.db, func(row pgx.CollectableRow) (m dueDelivery, err error) {
		err = row.Scan(&m.id, &m.webhook, &m.url, &m.format, &m.secrets, &m.eventType, &m.payload, &m.attempts)
		return m, err
	}, "claim deliveries", claimSQL, ids, free, d.inFlightIDs(), total)
	if err != nil {
		return err
	}
	if len(due) > 0 {
		d.webhooks.options.BeforeSend(ctx)
	}
	if time.Since(d.renewed) >= d.webhooks.options.leaseDuration {
		return nil // another process may hold the lease now; the next step checks
	}
	for _, m := range due {
		d.inFlight[m.id] = m.webhook
		d.calls.Go(func() {
			r := d.webhooks.client.send(callCtx, m.url, m.secrets, m.id.String(), d.webhooks.body(m.format, m.payload))
			d.finished <- attemptResult{dueDelivery: m, response: r}
		})
	}
	return nil
}

const hasDueSQL = `
/* is a delivery due */
select exists (select from cuelight_webhooks w
                where w.pipeline = $1 and w.disabled_at is null
                  and exists (select from cuelight_deliveries d
                               where d.webhook_id = w.id and d.status = 'pending' and d.run_at <= now()))`

// HasDue reports whether deliveries are due, including those whose receivers are being called.
func (w *Webhooks) HasDue(ctx context.Context) (isDue bool, err error) {
	if err := w.db.QueryRow(ctx, hasDueSQL, w.pipeline()).Scan(&isDue); err != nil {
		return false, fmt.Errorf("look for due deliveries: %w", err)
	}
	return isDue, nil
}

// inFlightIDs returns the deliveries whose last results are not written yet.
func (d *deliverer) inFlightIDs() []store.ID {
	return slices.AppendSeq(make([]store.ID, 0, len(d.inFlight)), maps.Keys(d.inFlight))
}

// freeSlots returns how many calls can start, per webhook and in total. A failing
// receiver gets one call at a time, and all failing ones together get half of the calls,
// so that they do not delay the others.
func (d *deliverer) freeSlots(endpoints []endpoint) (ids []store.ID, free []int, total int) {
	o := d.webhooks.options
	busy := map[store.ID]int{}
	failingSlots := max(o.Concurrency/2, 1)
	for _, webhook := range d.inFlight {
		busy[webhook]++
		if d.healthOf(webhook).isFailing() {
			failingSlots--
		}
	}
	total = o.Concurrency - len(d.inFlight)
	now := time.Now()
	for _, i := range rand.Perm(len(endpoints)) {
		id := endpoints[i].id
		h, n := d.healthOf(id), o.PerWebhook-busy[id]
		if h.isFailing() {
			n = min(1-busy[id], failingSlots)
			failingSlots -= max(n, 0)
		}
		if n > 0 && total > 0 && !now.Before(h.notBefore) {
			ids, free = append(ids, id), append(free, n)
		}
	}
	return ids, free, total
}
