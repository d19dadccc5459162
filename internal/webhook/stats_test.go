package webhook

import (
	"context"
	"fmt"
	"time"
)

// Stats are statistics of a pipeline's enabled webhooks.
type Stats struct {
	Pending   int           // deliveries
	Unread    int           // rows of events after the lowest cursor
	OldestAge time.Duration // of these; 0 for none
	Dead      int           // deliveries
}

const statsSQL = `
/* webhook figures */
with hooks as (
  select id, cursor from cuelight_webhooks where pipeline = $1 and disabled_at is null
), unread as (
  select count(*) as n, min(at) as since
    from ((select at from {outbox} where id > (select min(cursor) >> 16 from hooks) order by id limit 10000)
           union all
          (select finished_at from {attempts} where event_id > (select min(cursor) >> 16 from hooks)
            order by event_id limit 10000)) as o
), waiting as (
  select coalesce(sum(p.n), 0) as n, min(p.since) as since, coalesce(sum(p.dead), 0) as dead
    from hooks h
   cross join lateral (
         select count(*) as n, min(d.created_at) as since,
                (select count(*) from cuelight_deliveries d where d.webhook_id = h.id and d.status = 'dead') as dead
           from cuelight_deliveries d where d.webhook_id = h.id and d.status = 'pending') as p
)
select waiting.n, unread.n,
       coalesce(greatest(extract(epoch from now() - least(waiting.since, unread.since)), 0), 0)::float8, waiting.dead
  from waiting, unread`

// Stats reads only pending and dead deliveries.
func (w *Webhooks) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	var oldest float64
	err := w.db.QueryRow(ctx, w.options.Graph.SQL(statsSQL), w.pipeline()).Scan(&s.Pending,
		&s.Unread, &oldest, &s.Dead)
	if err != nil {
		return Stats{}, fmt.Errorf("count deliveries: %w", err)
	}
	s.OldestAge = time.Duration(oldest * float64(time.Second))
	return s, nil
}
