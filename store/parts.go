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

// withParts returns a statement about parts, or nothing for a graph whose stages are not divided.
func withParts(g Graph, text string) string {
	if !g.HasParts() {
		return ""
	}
	return g.SQL(text, nil)
}

const partsSQL = `
/* list parts */
select stage, part, status::text, attempts, token, locked_at, locked_by, run_at
  from {{.Parts}} where task_id = $1
 order by stage, part`

// Parts lists the parts of a task's divided stages; none for a task that does not exist.
func (s *Store) Parts(ctx context.Context, task ID) ([]PartState, error) {
	if s.sql.parts == "" {
		return nil, nil
	}
	rows, err := s.db.Query(ctx, s.sql.parts, task)
	if err != nil {
		return nil, s.explain("list parts", err)
	}
	parts, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p PartState, err error) {
		err = row.Scan(&p.Stage, &p.Part, &p.Status, &p.Attempts, &p.Token, &p.LockedAt, &p.LockedBy, &p.RunAt)
		return p, err
	})
	return parts, s.explain("list parts", err)
}

const partResultsSQL = `
/* results of parts */
select coalesce(result, 'null') from {{.Parts}}
 where task_id = $1 and stage = $2 and status = 'completed'
 order by part`

// PartResults returns the results of the completed parts of a stage, as JSON, in the order of the
// parts. It returns [ErrNotFound] for a stage that was not divided.
func (s *Store) PartResults(ctx context.Context, task ID, stage string) ([]json.RawMessage, error) {
	var all []json.RawMessage
	if s.sql.partResults != "" {
		rows, err := s.db.Query(ctx, s.sql.partResults, task, stage)
		if err != nil {
			return nil, s.explain("results of parts", err)
		}
		if all, err = pgx.CollectRows(rows, pgx.RowTo[json.RawMessage]); err != nil {
			return nil, s.explain("results of parts", err)
		}
	}
	if len(all) == 0 {
		return nil, s.explain("results of parts", fmt.Errorf("%w, or its stage %q was not divided", ErrNotFound, stage))
	}
	return all, nil
}
