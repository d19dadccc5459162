package webhook

import (
	"context"
	"fmt"
	"time"
)

// deleteFinishedSQL deletes old deliveries of one status, the oldest first. The index on
// the status gives this order, so it reads no other rows. The condition on finished_at
// keeps a delivery that is redelivered at the same time.
const deleteFinishedSQL = `
/* delete finished deliveries */
delete from cuelight_deliveries
 where finished_at is not null and id = any (array(
       select d.id from cuelight_deliveries d
        where d.status = '%s' and d.finished_at < now() - make_interval(secs => $2)
          and exists (select from cuelight_webhooks w where w.id = d.webhook_id and w.pipeline = $1)
        order by d.finished_at
        limit $3))`

// deleteCooldownsSQL keeps cooldowns for 30 days, because a lagging webhook may still
// read events of last week.
const deleteCooldownsSQL = `
/* delete cooldowns */
delete from cuelight_alert_cooldowns
 where until < now() - interval '30 days'
   and webhook_id in (select id from cuelight_webhooks where pipeline = $1)`

// maxDeletedRows is the number of rows per statement.
const maxDeletedRows = 1000

// deleteExpired deletes some of the deliveries whose retention is over. If more remain,
// the next poll deletes them. Nothing depends on it, so it has a short timeout, and after
// an error it waits until the next interval.
func (d *deliverer) deleteExpired(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	o, more := d.webhooks.options, false
	d.lastCleanup = time.Now()
	for _, finished := range []struct {
		status    string
		retention time.Duration
	}{{"delivered", o.Retention}, {"suppressed", o.Retention}, {"dead", o.DeadRetention}} {
		if finished.retention < 0 {
			continue
		}
		sql := fmt.Sprintf(deleteFinishedSQL, finished.status)
		tag, err := d.webhooks.db.Exec(ctx, sql, d.webhooks.pipeline(), finished.retention.Seconds(), maxDeletedRows)
		if err != nil {
			return fmt.Errorf("delete finished deliveries: %w", err)
		}
		if n := int(tag.RowsAffected()); n > 0 {
			o.OnDeleted(n)
		}
		more = more || tag.RowsAffected() == maxDeletedRows
	}
	if _, err := d.webhooks.db.Exec(ctx, deleteCooldownsSQL, d.webhooks.pipeline()); err != nil {
		return fmt.Errorf("delete cooldowns: %w", err)
	}
	if more {
		d.lastCleanup = time.Time{}
	}
	return nil
}
