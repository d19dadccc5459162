package webhook

import (
	"context"
	"fmt"
	"time"
)

// Stats are the figures of a pipeline's webhooks. What waits for a webhook that is
// disabled is not among them.
type Stats struct {
	Pending   int           // deliveries to be made
	Unread    int           // rows of the outbox nobody has looked at for one of the webhooks: 10,000 at most
	OldestAge time.Duration // for which one of these has waited; 0 for none
	Dead      int           // deliveries that could not be made
}

const statsSQL = `
/* webhook figures */
with hooks as (
  select id, cursor from cuelight_webhooks where pipeline = $1 and disabled_at is null
), unread as (
  select count(*) as n, min(at) as since
    from (select at from %soutbox where id > (select min(cursor) >> 16 from hooks) order by id limit 10000) as o
), waiting as (
  select coalesce(sum(p.n), 0) as n, min(p.since) as since, coalesce(sum(p.dead), 0) as dead
    from hooks h
   cross join lateral (
         select count(*) as n, min(d.created_at) as since,
                (select count(*) from cuelight_deliveries d where d.webhook_id = h.id and d.status = 'dead') as dead
           from cuelight_deliveries d where d.webhook_id = h.id and d.status = 'pending') as p
)
select waiting.n, unread.n, coalesce(greatest(extract(epoch from now() - least(waiting.since, unread.since)), 0), 0)::float8, waiting.dead
  from waiting, unread`

// Stats counts. It reads all that waits or is dead, and nothing else.
func (w *Webhooks) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	var oldest float64
	err := w.db.QueryRow(ctx, fmt.Sprintf(statsSQL, w.tablePrefix()), w.options.Pipeline).Scan(&s.Pending, &s.Unread, &oldest, &s.Dead)
	if err != nil {
		return Stats{}, fmt.Errorf("count deliveries: %w", err)
	}
	s.OldestAge = time.Duration(oldest * float64(time.Second))
	return s, nil
}
