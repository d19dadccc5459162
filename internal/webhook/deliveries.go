package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// Delivery is one event for one webhook.
type Delivery struct {
	ID         store.ID   `json:"id"` // the header webhook-id
	Webhook    store.ID   `json:"webhook_id"`
	Event      int64      `json:"event_id"`
	Type       string     `json:"type"`
	Task       store.ID   `json:"task_id,omitzero"`
	Status     string     `json:"status"` // pending, delivered, dead or suppressed
	CreatedAt  time.Time  `json:"created_at"`
	Attempts   int        `json:"attempts"`
	RunAt      time.Time  `json:"run_at"` // not before
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	Response   int        `json:"response,omitempty"` // the last answer's status
	Error      string     `json:"error,omitempty"`    // of the last attempt
	Payload    string     `json:"payload"`            // what is sent, to the letter
}

// DeliveryFilter chooses deliveries. Its zero value chooses all.
type DeliveryFilter struct {
	Webhook store.ID
	Status  string   // pending, delivered, dead or suppressed
	After   store.ID // only those older than this one, for the next page
	Limit   int      // at most so many; default 100
}

const deliveriesSQL = `
/* list deliveries */
select d.id, d.webhook_id, d.event_id, d.type, d.task_id, d.status, d.created_at, d.attempts, d.run_at, d.finished_at,
       coalesce(d.response, 0), d.error, d.payload
  from cuelight_deliveries d
 where d.webhook_id in (select id from cuelight_webhooks where pipeline = $1 and ($2::uuid is null or id = $2))
   and ($3::uuid is null or d.id < $3)
   and %s
 order by d.id desc
 limit $4`

// byStatus: a partial index serves a condition that is written out, not one that
// is in a parameter.
var byStatus = map[string]string{
	"": "true", "pending": "d.status = 'pending'", "delivered": "d.status = 'delivered'",
	"dead": "d.status = 'dead'", "suppressed": "d.status = 'suppressed'",
}

// Deliveries lists them, the newest first. The next page is that After the last.
func (w *Webhooks) Deliveries(ctx context.Context, f DeliveryFilter) ([]Delivery, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	status, ok := byStatus[f.Status]
	if !ok {
		return nil, fmt.Errorf("list deliveries: %w: there is no status %q", ErrInvalid, short(f.Status))
	}
	rows, err := w.db.Query(ctx, fmt.Sprintf(deliveriesSQL, status), w.o.Pipeline, f.Webhook, f.After, f.Limit)
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d Delivery, err error) {
		err = row.Scan(&d.ID, &d.Webhook, &d.Event, &d.Type, &d.Task, &d.Status, &d.CreatedAt, &d.Attempts, &d.RunAt, &d.FinishedAt,
			&d.Response, &d.Error, &d.Payload)
		return d, err
	})
	if err != nil {
		return nil, fmt.Errorf("list deliveries: %w", err)
	}
	return all, nil
}

const redeliverSQL = `
/* redeliver */
update cuelight_deliveries
   set status = 'pending', attempts = 0, run_at = now(), finished_at = null, response = null, error = ''
 where id = $1 and status <> 'pending'
   and webhook_id in (select id from cuelight_webhooks where pipeline = $2)
returning id`

const deliveryThereSQL = `
/* look for delivery */
select d.id from cuelight_deliveries d join cuelight_webhooks w on w.id = d.webhook_id where d.id = $1 and w.pipeline = $2`

// Redeliver delivers again what is dead, delivered or suppressed, under the same
// id, with all its attempts. For what is pending anyway it does nothing.
func (w *Webhooks) Redeliver(ctx context.Context, delivery store.ID) error {
	var id store.ID
	err := w.db.QueryRow(ctx, redeliverSQL, delivery, w.o.Pipeline).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		err = w.db.QueryRow(ctx, deliveryThereSQL, delivery, w.o.Pipeline).Scan(&id)
	}
	if err != nil {
		return fmt.Errorf("redeliver: %w", notFound(err))
	}
	return nil
}

const redeliverDeadSQL = `
/* redeliver dead */
update cuelight_deliveries
   set status = 'pending', attempts = 0, run_at = now(), finished_at = null, response = null, error = ''
 where webhook_id in (select id from cuelight_webhooks where id = $1 and pipeline = $2) and status = 'dead'`

// RedeliverDead delivers again all that is dead of one webhook, in order per
// task, and returns how many those are.
func (w *Webhooks) RedeliverDead(ctx context.Context, webhook store.ID) (int, error) {
	done, err := w.db.Exec(ctx, redeliverDeadSQL, webhook, w.o.Pipeline)
	if err != nil {
		return 0, fmt.Errorf("redeliver dead: %w", err)
	}
	return int(done.RowsAffected()), nil
}

// Attempt is what became of a ping.
type Attempt struct {
	OK     bool          `json:"ok"`
	Status int           `json:"status,omitempty"` // of the answer; 0 if there was none
	Error  string        `json:"error,omitempty"`
	Took   time.Duration `json:"took_ns"`
}

const targetSQL = `
/* find webhook */
select url, array_remove(array[secret, case when old_until > now() then old_secret end], null)
  from cuelight_webhooks where id = $1 and pipeline = $2`

// Test sends a ping, signed as everything else, from this process and at once, and
// returns what became of it. It does so also where the webhook is disabled.
func (w *Webhooks) Test(ctx context.Context, id store.ID) (Attempt, error) {
	var address string
	var secrets []string
	if err := w.db.QueryRow(ctx, targetSQL, id, w.o.Pipeline).Scan(&address, &secrets); err != nil {
		return Attempt{}, fmt.Errorf("test webhook: %w", notFound(err))
	}
	ping := body{Type: "ping", Timestamp: time.Now().UTC(), Data: data{Pipeline: w.o.Pipeline, Webhook: id}}
	r := w.client.send(ctx, address, secrets, newID().String(), ping.text())
	if r.aborted {
		return Attempt{}, fmt.Errorf("test webhook: %w", ctx.Err())
	}
	return Attempt{OK: r.ok(), Status: r.status, Error: r.err, Took: r.took}, nil
}

func notFound(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	return err
}
