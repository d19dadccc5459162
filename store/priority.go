package store

import "context"

const changePrioritySQL = `
/* change priority */
update {tasks} set priority = $3 where id = any($1::uuid[]) and priority = $2`

// ChangePriority changes the priority of tasks. Those with another priority than from keep
// theirs.
func (s *Store) ChangePriority(ctx context.Context, tasks []ID, from, to int16) error {
	_, err := s.exec(ctx, changePrioritySQL, tasks, from, to)
	return s.explain("change priority", err)
}
