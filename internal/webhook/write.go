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

const lockWebhooksSQL = `
/* lock webhooks */
select id, cursor from cuelight_webhooks where id = any($1::uuid[]) order by id for no key update`

// write: a delivery waits with those of its task that are there already.
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
  from unnest($3::bigint[], $4::text[], $5::uuid[], $6::text[], $7::bool[]) as e (event_id, type, task_id, payload, suppressed)
 order by e.event_id
on conflict (webhook_id, event_id, type) do nothing`

// outdate: nobody wants to know how far a stage was an hour ago. Progress that is on
// its way stays, or the new one would overtake it, and so does what was tried, or
// the new one would be tried at once, each time.
const deleteOutdatedProgressSQL = `
/* delete outdated progress */
delete from cuelight_deliveries d using unnest($2::uuid[], $3::text[]) as new (task_id, stage)
 where d.webhook_id = $1 and d.task_id = new.task_id and d.status = 'pending' and d.type = 'progress' and d.attempts = 0
   and d.id <> all ($4::uuid[]) and d.payload::json #>> '{data,stage}' = new.stage`

const writeCooldownSQL = `
/* write cooldown */
insert into cuelight_alert_cooldowns (webhook_id, subject, until, suppressed) values ($1, $2, $3, $4)
on conflict (webhook_id, subject) do update set until = excluded.until, suppressed = excluded.suppressed`

// finish: what became of an attempt, once. What comes after it in its task waits
// for as long as it does, or need not wait any more. What failed where the webhook
// does not lead any more is tried at once where it does.
const finishAttemptSQL = `
/* finish delivery */
with this as (
  update cuelight_deliveries
     set attempts = attempts + 1, status = $3, response = nullif($5, 0), error = $6,
         run_at = case when $3 <> 'pending' then run_at
                       when exists (select from cuelight_webhooks where id = webhook_id and url = $7) then now() + make_interval(secs => $4)
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
 where d.webhook_id = next.webhook_id and d.task_id = next.task_id and d.status = 'pending' and d.event_id > next.event_id
   and case when next.wait_for is null then d.run_at > now() else d.run_at < next.wait_for end`

const disableGoneSQL = `
/* disable webhook that is gone */
update cuelight_webhooks set disabled_at = now(), disabled_why = $2 where id = $1 and url = $3 and disabled_at is null`

// back: the receiver answers again, and what could not reach it need not wait for
// its next attempt. Nor need what it had an error of its own for, while there are
// attempts enough left for the days that were promised: it may be the event that it
// cannot take, whenever that comes.
const retryAfterOutageSQL = `
/* hurry after outage */
update cuelight_deliveries set run_at = now()
 where webhook_id = $1 and status = 'pending' and run_at > now()
   and (attempts = 0 or response is null or response between 502 and 504
        or attempts < 6 and (response >= 500 or response in (408, 425, 429)))`

// waitedFor: nothing waits for a receiver but what it did not take, and what comes
// after that.
const failedBeforeSQL = `
/* read who failed before */
select w.id from cuelight_webhooks w
 where w.pipeline = $1 and w.disabled_at is null
   and exists (select from cuelight_deliveries d where d.webhook_id = w.id and d.status = 'pending' and d.run_at > now())`

// result is an attempt that is over, and what is to be written of it.
type attemptResult struct {
	dueDelivery
	response
	outcome Outcome
	retryIn time.Duration // until the next attempt
}

// judge says what becomes of a delivery.
func (w *Webhooks) classify(r *attemptResult) {
	switch {
	case r.isDelivered():
		r.outcome = Delivered
	case r.status == 410:
		r.outcome = Gone
	case r.attempts >= len(w.options.schedule):
		r.outcome = Dead
	default:
		r.outcome = Failed
		r.retryIn = max(withJitter(w.options.schedule[r.attempts]), r.retryAfter)
	}
}

// rowStatus is the one in the table. For a receiver that is gone the delivery
// stays, until somebody enables the webhook again.
func (r attemptResult) rowStatus() string {
	switch r.outcome {
	case Delivered:
		return "delivered"
	case Dead:
		return "dead"
	}
	return "pending"
}

const goneReason = "the receiver answered 410 Gone"

// record writes plans and results, all or nothing, if the lease still holds. The
// webhooks' rows are locked first, in one order, so that nobody who disables or
// removes one meets us halfway.
func (d *deliverer) write(ctx context.Context, plans []plan, results []attemptResult, back []store.ID) error {
	begun := time.Now()
	err := pgx.BeginFunc(ctx, d.webhooks.db, func(tx pgx.Tx) error {
		cursors, err := d.lockRows(ctx, tx, plans, results)
		if err != nil {
			return err
		}
		var batch pgx.Batch
		for _, r := range results {
			batch.Queue(finishAttemptSQL, r.id, r.attempts, r.rowStatus(), r.retryIn.Seconds(), r.status, r.failure, r.url)
			if r.outcome == Gone {
				batch.Queue(disableGoneSQL, r.webhook, goneReason, r.url)
			}
		}
		for _, p := range plans {
			if at, there := cursors[p.endpoint.id]; there && at == p.endpoint.cursor {
				p.queueStatements(&batch, d.inFlightIDs())
			}
		}
		for _, id := range back {
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
	return nil
}

// lock takes the lease, or returns errLost, and then the webhooks' rows.
func (d *deliverer) lockRows(ctx context.Context, tx pgx.Tx, plans []plan, results []attemptResult) (map[store.ID]int64, error) {
	var ids []store.ID
	for _, p := range plans {
		ids = append(ids, p.endpoint.id)
	}
	for _, r := range results {
		ids = append(ids, r.webhook)
	}
	var batch pgx.Batch
	batch.Queue(renewSQL, d.webhooks.leaseName(), d.holder, d.webhooks.options.leaseDuration.Seconds()).QueryRow(func(row pgx.Row) error {
		var held bool
		err := row.Scan(&held)
		if errors.Is(err, pgx.ErrNoRows) {
			return errLeaseLost
		}
		return err
	})
	cursors := map[store.ID]int64{}
	batch.Queue(lockWebhooksSQL, ids).Query(func(rows pgx.Rows) error {
		var id store.ID
		var cursor int64
		_, err := pgx.ForEachRow(rows, []any{&id, &cursor}, func() error {
			cursors[id] = cursor
			return nil
		})
		return err
	})
	return cursors, tx.SendBatch(ctx, &batch).Close()
}

func (p plan) queueStatements(batch *pgx.Batch, flying []store.ID) {
	var events []int64
	var types, payloads, stages []string
	var tasks, working []store.ID
	var suppressed []bool
	for _, r := range p.deliveries {
		if r.isProgress() {
			working, stages = append(working, r.task), append(stages, r.stage)
		}
		events, types, payloads = append(events, r.event), append(types, r.eventType), append(payloads, r.payload)
		tasks, suppressed = append(tasks, r.task), append(suppressed, r.suppressed)
	}
	if len(working) > 0 {
		batch.Queue(deleteOutdatedProgressSQL, p.endpoint.id, working, stages, flying)
	}
	batch.Queue(insertDeliveriesSQL, p.endpoint.id, p.upTo, events, types, tasks, payloads, suppressed)
	kinds := make([]string, 0, len(p.cooldowns))
	for kind := range p.cooldowns {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		q := p.cooldowns[kind]
		batch.Queue(writeCooldownSQL, p.endpoint.id, kind, q.until, q.suppressed)
	}
}

// sweep: finished deliveries go, the oldest first. Of each status on its own, so
// that the index gives them in that order, however many there are: nothing else is
// read. What somebody has delivered again meanwhile is not finished any more.
const deleteFinishedSQL = `
/* delete finished deliveries */
delete from cuelight_deliveries
 where finished_at is not null and id = any (array(
       select d.id from cuelight_deliveries d
        where d.status = '%s' and d.finished_at < now() - make_interval(secs => $2)
          and exists (select from cuelight_webhooks w where w.id = d.webhook_id and w.pipeline = $1)
        order by d.finished_at
        limit $3))`

// What happened so long ago is over. (What is looked at may be from the week before,
// where a webhook is behind.)
const deleteCooldownsSQL = `
/* delete cooldowns */
delete from cuelight_alert_cooldowns
 where until < now() - interval '30 days'
   and webhook_id in (select id from cuelight_webhooks where pipeline = $1)`

// sweepMost is how many of each are deleted in one transaction.
const maxDeletedRows = 1000

// sweep deletes some of what was kept long enough, and says when it is to be called
// again. Nothing waits for it, so it gives up soon, and is not tried again at once.
func (d *deliverer) deleteExpired(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	o, more := d.webhooks.options, false
	d.lastCleanup = time.Now()
	for _, of := range []struct {
		status string
		keep   time.Duration
	}{{"delivered", o.Retention}, {"suppressed", o.Retention}, {"dead", o.DeadRetention}} {
		done, err := d.webhooks.db.Exec(ctx, fmt.Sprintf(deleteFinishedSQL, of.status), o.Pipeline, of.keep.Seconds(), maxDeletedRows)
		if err != nil {
			return fmt.Errorf("delete finished deliveries: %w", err)
		}
		more = more || done.RowsAffected() == maxDeletedRows
	}
	if _, err := d.webhooks.db.Exec(ctx, deleteCooldownsSQL, o.Pipeline); err != nil {
		return fmt.Errorf("delete cooldowns: %w", err)
	}
	if more {
		d.lastCleanup = time.Time{}
	}
	return nil
}
