package store

import "context"

const changePrioritySQL = `
/* change priority */
update {{.Tasks}} set priority = $3 where id = any($1::uuid[]) and priority = $2`

// ChangePriority gives those of the tasks that have the priority from the priority to.
func (s *Store) ChangePriority(ctx context.Context, tasks []ID, from, to int16) error {
	_, err := s.db.Exec(ctx, s.graph.SQL(changePrioritySQL, nil), tasks, from, to)
	return s.explain("change priority", err)
}
