package webhook

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// message is a delivery that is to be made.
type dueDelivery struct {
	id        store.ID
	webhook   store.ID
	url       string   // as it is now: it may have been changed since the hooks were read
	secrets   []string // that sign, as they are now: one that got out signs nothing once it is replaced
	eventType string
	payload   string
	attempts  int
}

// claim: what is due, for each webhook as much as may be on its way to it, and
// fairly where that is more than may be in all. An event whose task has an earlier
// one waits for that.
const claimSQL = `
/* claim deliveries */
select d.id, d.webhook_id, h.url, array_remove(array[h.secret, case when h.old_until > now() then h.old_secret end], null),
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

// call makes as many calls as may be made now.
func (d *deliverer) sendDue(ctx, calling context.Context, hooks []endpoint) error {
	ids, free, total := d.freeSlots(hooks)
	if len(ids) == 0 {
		return nil
	}
	rows, err := d.webhooks.db.Query(ctx, claimSQL, ids, free, d.inFlightIDs(), total)
	if err != nil {
		return fmt.Errorf("claim deliveries: %w", err)
	}
	messages, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m dueDelivery, err error) {
		err = row.Scan(&m.id, &m.webhook, &m.url, &m.secrets, &m.eventType, &m.payload, &m.attempts)
		return m, err
	})
	if err != nil {
		return fmt.Errorf("claim deliveries: %w", err)
	}
	if time.Since(d.renewed) >= d.webhooks.options.leaseDuration {
		return nil // somebody else may have begun; the next turn will know
	}
	for _, m := range messages {
		d.inFlight[m.id] = m.webhook
		d.calls.Go(func() {
			d.finished <- attemptResult{dueDelivery: m, response: d.webhooks.client.send(calling, m.url, m.secrets, m.id.String(), m.payload)}
		})
	}
	return nil
}

// onTheirWay are the deliveries of which it is not written yet what became of them.
func (d *deliverer) inFlightIDs() []store.ID {
	return slices.AppendSeq(make([]store.ID, 0, len(d.inFlight)), maps.Keys(d.inFlight))
}

// room is how many calls may be made, to each webhook and in all. Those whose
// receivers fail get one at a time, and half of all together: however many hang,
// there is room for the others.
func (d *deliverer) freeSlots(hooks []endpoint) (ids []store.ID, free []int, total int) {
	o := d.webhooks.options
	busy := map[store.ID]int{}
	failing := max(o.Concurrency/2, 1)
	for _, hook := range d.inFlight {
		busy[hook]++
		if d.healthOf(hook).isFailing() {
			failing--
		}
	}
	total = o.Concurrency - len(d.inFlight)
	now := time.Now()
	for _, i := range rand.Perm(len(hooks)) {
		id := hooks[i].id
		h, n := d.healthOf(id), o.PerWebhook-busy[id]
		if h.isFailing() {
			n = min(1-busy[id], failing)
			failing -= max(n, 0)
		}
		if n > 0 && total > 0 && !now.Before(h.notBefore) {
			ids, free = append(ids, id), append(free, n)
		}
	}
	return ids, free, total
}

// health is how a receiver has done lately. It is lost with the lease, but for what
// the table says; see known. It only says how hard to try.
type endpointHealth struct {
	failures  int       // in a row
	notBefore time.Time // the receiver wants nothing before
}

const failuresToFailing = 3

func (h *endpointHealth) isFailing() bool { return h.failures >= failuresToFailing }

// saw takes in an answer, and reports whether a receiver that was failing is back.
func (h *endpointHealth) record(r response, now time.Time) (back bool) {
	if r.isDelivered() {
		back = h.isFailing()
		*h = endpointHealth{}
		return back
	}
	h.failures++
	if r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable {
		h.notBefore = now.Add(r.retryAfter)
	}
	return false
}

// known begins with what the table says of receivers: one that something waits for
// has failed before.
func (d *deliverer) loadHealth(ctx context.Context) error {
	rows, err := d.webhooks.db.Query(ctx, failedBeforeSQL, d.webhooks.options.Pipeline)
	if err != nil {
		return fmt.Errorf("read who failed: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[store.ID])
	if err != nil {
		return fmt.Errorf("read who failed: %w", err)
	}
	d.health = make(map[store.ID]*endpointHealth)
	for _, id := range ids {
		d.health[id] = &endpointHealth{failures: failuresToFailing}
	}
	return nil
}

// forget drops what is known of receivers whose webhooks are gone, disabled, or lead
// elsewhere now: who enables one again has reasons to try, and another receiver is to
// be tried.
func (d *deliverer) dropStaleHealth(hooks []endpoint) {
	urls := make(map[store.ID]string, len(hooks))
	for _, h := range hooks {
		urls[h.id] = h.url
	}
	maps.DeleteFunc(d.health, func(id store.ID, _ *endpointHealth) bool { return urls[id] == "" || urls[id] != d.urls[id] })
	d.urls = urls
}

func (d *deliverer) healthOf(hook store.ID) *endpointHealth {
	h := d.health[hook]
	if h == nil {
		h = &endpointHealth{}
		d.health[hook] = h
	}
	return h
}
