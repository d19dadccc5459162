package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// PartState is one part of a divided stage of a task.
type PartState struct {
	Stage    string     `json:"stage"`
	Part     int        `json:"part"` // counted from 1
	Status   Status     `json:"status"`
	Attempts int        `json:"attempts"`
	Token    ID         `json:"-"`
	LockedAt *time.Time `json:"locked_at,omitempty"`
	LockedBy ID         `json:"locked_by,omitzero"`
	RunAt    *time.Time `json:"run_at,omitempty"`
}

// partsSQL: a stopped part is dead if no other attempt was to follow its last one.
const partsSQL = `
/* list parts */
select stage, part, case status
         when 'ready' then case when attempts > 0 then 'failed' else 'pending' end when 'running' then 'inprogress'
         when 'waiting' then 'failed' when 'stopped' then case when (stage, part, attempts) in (
           select last.stage, last.part, last.attempt
             from (select distinct on (a.stage, a.part) * from {attempts} a where a.task_id = $1 and a.part > 0
                    order by a.stage, a.part, a.finished_at desc) as last
            where last.outcome in ('failed', 'expired') and last.retry_at is null)
           then 'dead' else 'cancelled' end else status::text end,
       attempts, token, locked_at, locked_by, run_at
  from {steps} where task_id = $1 and part > 0
 order by stage, part`

// Parts lists the parts of a task's divided stages; none for a task that does not exist.
func (s *Store) Parts(ctx context.Context, task ID) ([]PartState, error) {
	return query(ctx, s, "list parts", partsSQL, func(row pgx.CollectableRow) (p PartState, err error) {
		err = row.Scan(&p.Stage, &p.Part, &p.Status, &p.Attempts, &p.Token, &p.LockedAt, &p.LockedBy, &p.RunAt)
		return p, err
	}, task)
}

const partResultsSQL = `
/* results of parts */
select coalesce(result, 'null') from {steps}
 where task_id = $1 and stage = $2 and part > 0 and status = 'completed'
 order by part`

// PartResults returns the results of the completed parts of a stage, as JSON, in the order of the
// parts. It returns [ErrNotFound] for a stage that was not divided.
func (s *Store) PartResults(ctx context.Context, task ID, stage string) ([]json.RawMessage, error) {
	all, err := query(ctx, s, "results of parts", partResultsSQL, pgx.RowTo[json.RawMessage], task, stage)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, s.explain("results of parts", fmt.Errorf("%w, or its stage %q was not divided", ErrNotFound, stage))
	}
	return all, nil
}
