package webhook

import (
	"context"
	"maps"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// failuresToFailing is how many failures in a row make a receiver a failing one.
const failuresToFailing = 3

// endpointHealth counts a receiver's recent failures, to decide how often to call it. A
// new holder of the lease derives it from the table; see loadHealth.
type endpointHealth struct {
	failures  int       // in a row
	notBefore time.Time // from the receiver's Retry-After
}

func (h *endpointHealth) isFailing() bool { return h.failures >= failuresToFailing }

// record adds a response, and reports whether a failing receiver recovered.
func (h *endpointHealth) record(r response, now time.Time) (recovered bool) {
	if r.isDelivered() {
		recovered = h.isFailing()
		*h = endpointHealth{}
		return recovered
	}
	h.failures++
	if r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable {
		h.notBefore = now.Add(r.retryAfter)
	}
	return false
}

func (d *deliverer) healthOf(webhook store.ID) *endpointHealth {
	h := d.health[webhook]
	if h == nil {
		h = &endpointHealth{}
		d.health[webhook] = h
	}
	return h
}

// updateHealth forgets the health of webhooks that were deleted, disabled, or got another
// URL: an operator who enables or changes one expects new calls.
func (d *deliverer) updateHealth(ctx context.Context, endpoints []endpoint) error {
	urls := make(map[store.ID]string, len(endpoints))
	for _, h := range endpoints {
		urls[h.id] = h.url
	}
	maps.DeleteFunc(d.health, func(id store.ID, _ *endpointHealth) bool {
		return urls[id] == "" || urls[id] != d.urls[id]
	})
	d.urls = urls
	if d.health == nil {
		return d.loadHealth(ctx)
	}
	return nil
}

// A pending delivery in the future is a failed one, or a later one of the same task.
const failedBeforeSQL = `
/* read failing webhooks */
select w.id from cuelight_webhooks w
 where w.pipeline = $1 and w.disabled_at is null
   and exists (select from cuelight_deliveries d
                where d.webhook_id = w.id and d.status = 'pending' and d.run_at > now())`

// loadHealth marks the receivers as failing that have failed deliveries.
func (d *deliverer) loadHealth(ctx context.Context) error {
	w := d.webhooks
	ids, err := collect(ctx, w.db, pgx.RowTo[store.ID], "read failing webhooks", failedBeforeSQL, w.pipeline())
	if err != nil {
		return err
	}
	d.health = make(map[store.ID]*endpointHealth)
	for _, id := range ids {
		d.health[id] = &endpointHealth{failures: failuresToFailing}
	}
	return nil
}
