package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

const lockWebhooksSQL = `
/* lock webhooks */
select id, cursor, types from cuelight_webhooks where id = any($1::uuid[]) order by id for no key update`

// insertDeliveriesSQL moves the cursor and inserts deliveries. A new one waits as long as
// the pending ones of its task.
const insertDeliveriesSQL = `
/* write deliveries */
with moved as (
  update cuelight_webhooks set cursor = $2 where id = $1
)
insert into cuelight_deliveries (webhook_id, event_id, type, task_id, payload, run_at, status, finished_at)
select $1, e.event_id, e.type, e.task_id, e.payload,
       greatest(now(), (select max(p.run_at) from cuelight_deliveries p
                         where p.webhook_id = $1 and p.task_id = e.task_id and p.status = 'pending')),
       case when e.suppressed then 'suppressed' else 'pending' end,
       case when e.suppressed then now() end
  from unnest($3::bigint[], $4::text[], $5::uuid[], $6::text[], $7::bool[])
       as e (event_id, type, task_id, payload, suppressed)
 order by e.event_id
on conflict (webhook_id, event_id, type) do nothing`

// deleteOutdatedProgressSQL deletes pending progress of stages that have newer progress.
// It keeps progress in flight, because the new one would overtake it, and progress that
// was tried, because otherwise each new one would be tried without a wait.
const deleteOutdatedProgressSQL = `
/* delete outdated progress */
delete from cuelight_deliveries d using unnest($2::uuid[], $3::text[]) as new (task_id, stage)
 where d.webhook_id = $1 and d.task_id = new.task_id and d.status = 'pending' and d.type = 'progress' and d.attempts = 0
   and d.id <> all ($4::uuid[]) and d.payload::json #>> '{data,stage}' = new.stage`

const writeCooldownSQL = `
/* write cooldown */
insert into cuelight_alert_cooldowns (webhook_id, subject, until, suppressed) values ($1, $2, $3, $4)
on conflict (webhook_id, subject) do update set until = excluded.until, suppressed = excluded.suppressed`

// finishAttemptSQL writes the result of an attempt once. Later events of the task wait as
// long as the delivery, or become due. If the webhook got another URL since the attempt,
// the next one is due now.
const finishAttemptSQL = `
/* finish delivery */
with this as (
  update cuelight_deliveries
     set attempts = attempts + 1, status = $3, response = nullif($5, 0), error = $6,
         run_at = case when $3 <> 'pending' then run_at
                       when exists (select from cuelight_webhooks where id = webhook_id and url = $7)
                       then now() + make_interval(secs => $4)
                       else now() end,
         finished_at = case when $3 <> 'pending' then now() end
   where id = $1 and attempts = $2 and status = 'pending'
  returning id, webhook_id, task_id, event_id, run_at, status
), next as (
  select this.*, case when this.status = 'pending' then this.run_at end as wait_for from this
)
update cuelight_deliveries d
   set run_at = coalesce(next.wait_for, now())
  from next
 where d.webhook_id = next.webhook_id and d.task_id = next.task_id
   and d.status = 'pending' and d.event_id > next.event_id
   and case when next.wait_for is null then d.run_at > now() else d.run_at < next.wait_for end`

const goneReason = "the receiver answered 410 Gone"

const disableGoneSQL = `
/* disable webhook that is gone */
update cuelight_webhooks set disabled_at = now(), disabled_reason = $2 where id = $1 and url = $3 and disabled_at is null`

// retryAfterOutageSQL makes deliveries due that could not reach a receiver which recovered.
// It does so for temporary errors of the receiver, too, but only in the first attempts:
// the cause may be the event, and the later attempts must last for the promised days.
const retryAfterOutageSQL = `
/* retry after outage */
update cuelight_deliveries set run_at = now()
 where webhook_id = $1 and status = 'pending' and run_at > now()
   and (attempts = 0 or response is null or response between 502 and 504
        or attempts < 6 and (response >= 500 or response in (408, 425, 429)))`

// write writes plans and results in one transaction, if this process still holds the
// lease, and reports them. It locks the webhooks' rows first, in one order, so that it
// cannot deadlock with an operator who disables or removes a webhook.
func (d *deliverer) write(ctx context.Context, plans []plan) error {
	begun := time.Now()
	err := pgx.BeginFunc(ctx, d.webhooks.db, func(tx pgx.Tx) error {
		locked, err := d.lockRows(ctx, tx, plans)
		if err != nil {
			return err
		}
		var batch pgx.Batch
		for _, r := range d.unwritten {
			batch.Queue(finishAttemptSQL, r.id, r.attempts, r.rowStatus(), r.retryIn.Seconds(), r.status, r.failure, r.url)
			if r.outcome == Gone {
				batch.Queue(disableGoneSQL, r.webhook, goneReason, r.url)
			}
		}
		for _, p := range plans {
			// If the webhook changed since the plan, the next poll plans again.
			h, exists := locked[p.endpoint.id]
			if exists && h.cursor == p.endpoint.cursor && slices.Equal(h.types, p.endpoint.types) {
				p.queueStatements(&batch, d.inFlightIDs())
			}
		}
		for _, id := range d.recovered {
			batch.Queue(retryAfterOutageSQL, id)
		}
		if batch.Len() == 0 {
			return nil
		}
		return tx.SendBatch(ctx, &batch).Close()
	})
	if err != nil {
		return fmt.Errorf("write deliveries: %w", err)
	}
	d.renewed = begun
	d.reportWritten(plans)
	return nil
}

// lockRows renews the lease, or returns errLeaseLost, and locks the webhooks. It returns
// their cursors and types.
func (d *deliverer) lockRows(ctx context.Context, tx pgx.Tx, plans []plan) (map[store.ID]endpoint, error) {
	var ids []store.ID
	for _, p := range plans {
		ids = append(ids, p.endpoint.id)
	}
	for _, r := range d.unwritten {
		ids = append(ids, r.webhook)
	}
	var batch pgx.Batch
	w := d.webhooks
	batch.Queue(renewSQL, w.leaseName(), d.holder, w.options.leaseDuration.Seconds()).QueryRow(func(row pgx.Row) error {
		var held bool
		err := row.Scan(&held)
		if errors.Is(err, pgx.ErrNoRows) {
			return errLeaseLost
		}
		return err
	})
	locked := map[store.ID]endpoint{}
	batch.Queue(lockWebhooksSQL, ids).Query(func(rows pgx.Rows) error {
		var h endpoint
		_, err := pgx.ForEachRow(rows, []any{&h.id, &h.cursor, &h.types}, func() error {
			locked[h.id] = endpoint{cursor: h.cursor, types: slices.Clone(h.types)}
			return nil
		})
		return err
	})
	return locked, tx.SendBatch(ctx, &batch).Close()
}

func (p plan) queueStatements(batch *pgx.Batch, inFlight []store.ID) {
	var events []int64
	var types, payloads, progressStages []string
	var tasks, progressTasks []store.ID
	var suppressed []bool
	for _, n := range p.deliveries {
		if n.isProgress() {
			progressTasks, progressStages = append(progressTasks, n.task), append(progressStages, n.stage)
		}
		events, types, payloads = append(events, n.event), append(types, n.eventType), append(payloads, n.payload)
		tasks, suppressed = append(tasks, n.task), append(suppressed, n.suppressed)
	}
	if len(progressTasks) > 0 {
		batch.Queue(deleteOutdatedProgressSQL, p.endpoint.id, progressTasks, progressStages, inFlight)
	}
	batch.Queue(insertDeliveriesSQL, p.endpoint.id, p.upTo, events, types, tasks, payloads, suppressed)
	for _, subject := range slices.Sorted(maps.Keys(p.cooldowns)) {
		c := p.cooldowns[subject]
		batch.Queue(writeCooldownSQL, p.endpoint.id, subject, c.until, c.suppressed)
	}
}
