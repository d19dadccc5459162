package store

import "context"

const newestEventSQL = `
/* find newest event */
select coalesce(pg_sequence_last_value(to_regclass($1)), 0) << 16 | 65535`

// NewestEvent is a place after every event of a transaction that has committed by
// now, also those that cannot be shown yet because one that began earlier is still
// open. Once [Store.LastEvent] has come that far, all of them can be read.
func (s *Store) LastAllocatedEvent(ctx context.Context) (int64, error) {
	var id int64
	err := s.db.QueryRow(ctx, newestEventSQL, s.graph.prefix()+"outbox_id").Scan(&id)
	return id, s.explain("find newest event", err)
}
