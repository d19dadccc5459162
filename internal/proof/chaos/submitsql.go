package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

const submitSQL = `
with given as (
  select * from unnest($1::text[], $2::text[], $3::int2[], $4::timestamptz[], $5::text[], $6::text[], $7::text[])
           as given (request_id, source, priority, scheduled_at, placement, user_id, user_context)
), added as (
  insert into chaos_tasks (request_id, source, priority, scheduled_at, placement, user_id, user_context)
  select request_id, source, priority, scheduled_at, placement::jsonb, nullif(user_id, ''), user_context::json
    from given order by request_id
      on conflict do nothing
  returning request_id, id
)
select request_id, id from added
 union all
select request_id, t.id from chaos_tasks t join given using (request_id)`

// submitWithSQL submits tasks with SQL, as other programs do, and returns their ids.
func submitWithSQL(ctx context.Context, db store.DB, tasks []store.Submission) ([]store.ID, error) {
	n := len(tasks)
	requests, sources, users, priorities := make([]string, n), make([]string, n), make([]string, n), make([]int16, n)
	times, placements, contexts := make([]*time.Time, n), make([]*string, n), make([]*string, n)
	for i, t := range tasks {
		requests[i], sources[i], users[i], priorities[i] = t.RequestID, t.Source, t.UserID, t.Priority
		if !t.NotBefore.IsZero() {
			times[i] = &t.NotBefore
		}
		if t.UserContext != nil {
			contexts[i] = new(string(t.UserContext))
		}
		if t.Placement != nil {
			text, err := json.Marshal(t.Placement)
			if err != nil {
				return nil, err
			}
			placements[i] = new(string(text))
		}
	}
	rows, err := db.Query(ctx, submitSQL, requests, sources, priorities, times, placements, users, contexts)
	if err != nil {
		return nil, err
	}
	found := make(map[string]store.ID)
	var request string
	var id store.ID
	if _, err := pgx.ForEachRow(rows, []any{&request, &id}, func() error {
		found[request] = id
		return nil
	}); err != nil {
		return nil, err
	}
	ids := make([]store.ID, n)
	for i, request := range requests {
		id, ok := found[request]
		if !ok { // another try committed it after this one had begun
			return nil, fmt.Errorf("request %s was submitted meanwhile", request)
		}
		ids[i] = id
	}
	return ids, nil
}
