package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
)

// stageChange is the difference between the stages of existing tables and those of the
// program's graph.
type stageChange struct {
	Kept      []stageData // stages that have columns, with their previous needs
	Added     []stageData // stages that have none, with their needs
	Reindexed []stageData // kept stages with other needs: the index of ready tasks differs
	InParts   []stageData // stages that divide, and did not before
	// LockTimeout is how long Migrate waits for other users of the table, who wait
	// for Migrate meanwhile.
	LockTimeout time.Duration
}

// changeFrom returns how tables of a shape must change. A stage that the graph lacks is
// an error: the status that tasks have of it would be lost.
func (g Graph) changeFrom(shape string) (stageChange, error) {
	before := parseShape(shape)
	for _, n := range before {
		if _, ok := g.index[n.Name]; !ok {
			return stageChange{}, fmt.Errorf("%w: the tables have stage %q, which the program lacks, and stages "+
				"are neither removed nor renamed; keep it in the pipeline, or use another schema", ErrSchemaShape, n.Name)
		}
	}
	c := stageChange{LockTimeout: 15 * time.Second}
	for _, s := range g.templateData().Stages {
		i := slices.IndexFunc(before, func(n Node) bool { return n.Name == s.Name })
		if s.Divides && (i < 0 || !before[i].Divides) {
			c.InParts = append(c.InParts, s)
		}
		if i < 0 {
			c.Added = append(c.Added, s)
			continue
		}
		if !s.Divides && before[i].Divides {
			return stageChange{}, fmt.Errorf("%w: the tables have parts of stage %q, which the program does not divide; "+
				"let it divide the stage, into no parts, or use another schema", ErrSchemaShape, s.Name)
		}
		if !slices.Equal(before[i].Needs, s.Needs) {
			c.Reindexed = append(c.Reindexed, s)
		}
		s.Needs, s.Divides = before[i].Needs, before[i].Divides
		c.Kept = append(c.Kept, s)
	}
	return c, nil
}

// parseShape reads what [Graph.String] wrote.
func parseShape(shape string) (nodes []Node) {
	for text := range strings.SplitSeq(shape, "; ") {
		name, list, _ := strings.Cut(text, " needs ")
		n := Node{}
		n.Name, n.Divides = strings.CutSuffix(name, " in parts")
		if list != "" {
			n.Needs = strings.Split(list, ", ")
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// added lists the names of the added stages.
func (c stageChange) added() (names []string) {
	for _, s := range c.Added {
		names = append(names, s.Name)
	}
	return names
}

// AllCompleted is the condition that a task has completed all kept stages.
func (c stageChange) AllCompleted() string {
	var parts []string
	for _, s := range c.Kept {
		parts = append(parts, s.Name+"_status = 'completed'")
	}
	return strings.Join(parts, " and ")
}

// IsCancelled is the condition that a task is cancelled or overridden.
func (c stageChange) IsCancelled() string {
	return "overridden_by is not null or " + templateData{Stages: c.Kept}.Any("", "cancelled")
}

// HasStartedDownstream is the condition that a task has started a stage which now needs the
// added one, directly or not.
func (c stageChange) HasStartedDownstream(added stageData) string {
	parts := []string{"false"}
	for _, s := range c.Kept {
		if slices.Contains(s.Upstream, added.Name) {
			parts = append(parts, s.Name+"_status not in ('pending', 'cancelled')")
		}
	}
	return strings.Join(parts, " or ")
}

// ScheduledTime is the time that a task waits for before its first attempt, or null.
func (c stageChange) ScheduledTime() string {
	return "greatest(" + templateData{Stages: c.Kept}.Scheduled() + ")"
}

// A worker is alive while its session is open, or for the grace without one.
const previousWorkerSQL = `
/* find a worker with the previous stages */
select host, pid, extract(epoch from now() - heartbeat_at)::float8 from workers w
 where pipeline = $1 and stopped_at is null and lost_at is null
   and heartbeat_at > now() - case when {{.Connected "w."}} then lease else {{.DisconnectGrace "w."}} end
 order by heartbeat_at desc limit 1`

// lockShapeSQL makes workers that register wait, see engine.RegisterWorker.
const lockShapeSQL = `
/* lock the pipeline's shape */
select shape from cuelight_schema where pipeline = $1 for update`

// changeStages changes the tables to the graph's stages, in the caller's transaction.
func (s *Store) changeStages(ctx context.Context, tx pgx.Tx) (added []string, err error) {
	var shape string
	if err := tx.QueryRow(ctx, lockShapeSQL, s.graph.name).Scan(&shape); err != nil {
		return nil, err
	}
	change, err := s.graph.changeFrom(shape)
	if err != nil {
		return nil, err
	}
	if err := s.checkPreviousWorkers(ctx, tx); err != nil {
		return nil, err
	}
	err = execAll(ctx, tx, s.graph.render("add_stages.sql.tmpl", change), s.graph.SchemaSQL(), s.graph.TriggersSQL())
	if err != nil {
		return nil, s.explainStageChange(err)
	}
	return change.added(), nil
}

// checkPreviousWorkers returns an error if a worker runs: it has the previous stages, and
// the changed tables would reject what it reports.
func (s *Store) checkPreviousWorkers(ctx context.Context, tx pgx.Tx) error {
	var host string
	var pid int
	var silence float64
	err := tx.QueryRow(ctx, s.graph.SQL(previousWorkerSQL, nil), s.graph.name).Scan(&host, &pid, &silence)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: a worker with the previous stages runs on host %s (process %d, last heartbeat %.0f s ago); "+
		"stop all workers first", ErrSchemaShape, host, pid, silence)
}

// explainStageChange says which tasks prevent the change.
func (s *Store) explainStageChange(err error) error {
	state, constraint := statement.State(err)
	name := strings.TrimSuffix(strings.TrimPrefix(constraint, s.graph.tasks()+"_"), "_needs")
	if i, ok := s.graph.index[name]; ok && state == statement.CheckViolation {
		return fmt.Errorf("%w: stage %q has started in some tasks that have not completed what it needs now (%s); "+
			"let the program with the previous stages complete these tasks", ErrSchemaShape, name,
			strings.Join(s.graph.nodes[i].Needs, ", "))
	}
	return s.explain("change stages", err)
}
