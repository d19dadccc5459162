package report

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// Unoffered are tasks that wait in a stage for what none of the workers offers.
type Unoffered struct {
	Stage    string
	Requires []string
	Tasks    int // at most MaxCount
}

// String says what they wait for.
func (u Unoffered) String() string {
	return fmt.Sprintf("%s waits: it requires %s, and no running worker offers that", u.Stage, strings.Join(u.Requires, " and "))
}

const placedSQL = `
/* requirements of ready steps */
select stage, placement -> 'requires', count(distinct task_id)
  from (select * from {steps} where status = 'ready' and placement is not null limit $1) as placed
 where jsonb_array_length(placement -> 'requires') > 0
 group by stage, placement -> 'requires' order by count(distinct task_id) desc`

// Unoffered finds them among the steps that are ready, also those of divided stages.
func (r *Reader) Unoffered(ctx context.Context, workers []store.Worker) (all []Unoffered, err error) {
	err = r.read(ctx, placedSQL, []any{MaxCount}, func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Unoffered])
		return err
	})
	return slices.DeleteFunc(all, func(u Unoffered) bool { return isOffered(u.Requires, workers) }), r.explain("read requirements", err)
}

func isOffered(required []string, workers []store.Worker) bool {
	return slices.ContainsFunc(workers, func(w store.Worker) bool { return len(w.Lacks(required)) == 0 })
}

// UnofferedOf lists the stages of a task that are to be claimed, or have parts that are, and require what none of the
// workers offers. What joins the parts of a stage requires nothing.
func UnofferedOf(t store.Task, workers []store.Worker) (all []Unoffered) {
	byStage := t.Placements()
	for _, s := range t.Stages {
		required := byStage[s.Name].Requires
		isOpen := slices.Contains([]store.Status{store.StatusPending, store.StatusFailed, store.StatusDivided}, s.Status)
		isJoin := s.OpenParts != nil && *s.OpenParts == 0
		if isOpen && !isJoin && len(required) > 0 && !isOffered(required, workers) {
			all = append(all, Unoffered{s.Name, required, 1})
		}
	}
	return all
}

// PlacementWarnings are those of UnofferedOf as sentences.
func PlacementWarnings(t store.Task, workers []store.Worker) (warnings []string) {
	for _, u := range UnofferedOf(t, workers) {
		warnings = append(warnings, u.String())
	}
	return warnings
}
