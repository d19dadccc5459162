package store

import (
	"context"
	"encoding/json"
)

const changePrioritySQL = `
/* change priority */
update {{.Tasks}} set priority = $3 where id = any($1::uuid[]) and priority = $2`

// ChangePriority changes the priority of tasks. Those with another priority than from keep
// theirs.
func (s *Store) ChangePriority(ctx context.Context, tasks []ID, from, to int16) error {
	_, err := s.db.Exec(ctx, s.graph.SQL(changePrioritySQL, nil), tasks, from, to)
	return s.explain("change priority", err)
}

const setParamsSQL = `
/* set params */
update {{.Tasks}} set params = $2 where id = $1 returning id`

// SetParams replaces the parameters of a task. Attempts that begin later have the new ones. It returns
// [ErrNotFound].
func (s *Store) SetParams(ctx context.Context, task ID, params json.RawMessage) error {
	return s.updateOne(ctx, "set params", s.graph.SQL(setParamsSQL, nil), task, params)
}
