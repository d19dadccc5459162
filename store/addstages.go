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
	Kept  []stageData // stages that have columns
	Added []stageData // stages that have none
	// LockTimeout is how long Migrate waits for other users of the table, who wait
	// for Migrate meanwhile.
	LockTimeout time.Duration
}

// changeFrom returns how tables of a shape must change. A stage that the graph lacks is
// an error: the status that tasks have of it would be lost.
func (g Graph) changeFrom(shape string) (stageChange, error) {
	before := parseShape(shape)
	for _, n := range before {
		i, ok := g.index[n.Name]
		if !ok {
			return stageChange{}, fmt.Errorf("%w: the tables have stage %q, which the program lacks, and stages "+
				"are neither removed nor renamed; keep it in the pipeline, or use another schema", ErrSchemaShape, n.Name)
		}
		if n.Divides && !g.nodes[i].Divides {
			return stageChange{}, fmt.Errorf("%w: the tables have parts of stage %q, which the program does not divide; "+
				"let it divide the stage, into no parts, or use another schema", ErrSchemaShape, n.Name)
		}
	}
	c := stageChange{LockTimeout: 15 * time.Second}
	for _, s := range g.templateData(nil).Stages {
		if slices.ContainsFunc(before, func(n Node) bool { return n.Name == s.Name }) {
			c.Kept = append(c.Kept, s)
		} else {
			c.Added = append(c.Added, s)
		}
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

// KeptStatuses lists the status columns that the tables have.
func (c stageChange) KeptStatuses() string {
	var columns []string
	for _, s := range c.Kept {
		columns = append(columns, s.Name+"_status")
	}
	return strings.Join(columns, ", ")
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

// A worker is alive while its session is open, or for the grace without one.
const previousWorkerSQL = `
/* find a worker with the previous stages */
select host, pid, extract(epoch from now() - heartbeat_at)::float8 from {workers} w
 where stopped_at is null and lost_at is null
   and heartbeat_at > now() - case when cuelight_connected(session) then lease else cuelight_grace(lease) end
 order by heartbeat_at desc limit 1`

// lockShapeSQL makes workers that register wait, see engine.RegisterWorker.
const lockShapeSQL = `
/* lock the pipeline's stages */
select name, stages from {pipeline} for update`

// changeStages changes the tables to the graph's stages, in the caller's transaction.
func (s *Store) changeStages(ctx context.Context, tx pgx.Tx) (added []string, err error) {
	var name, shape string
	if err := s.queryRow(ctx, lockShapeSQL).Scan(&name, &shape); err != nil {
		return nil, err
	}
	if name != s.graph.name {
		return nil, fmt.Errorf("%w: the tables are those of pipeline %q; use another table prefix or another schema", ErrSchemaShape, name)
	}
	change, err := s.graph.changeFrom(shape)
	if err != nil {
		return nil, err
	}
	if err := s.checkPreviousWorkers(ctx); err != nil {
		return nil, err
	}
	err = execAll(ctx, tx, s.graph.render("add_stages.sql.tmpl", change), s.graph.SchemaSQL(), s.graph.TriggersSQL(),
		s.graph.SQL(reconcileAllSQL))
	if err != nil {
		return nil, s.explainStageChange(err)
	}
	for _, stage := range change.Added {
		added = append(added, stage.Name)
	}
	return added, nil
}

const reconcileAllSQL = `
/* open the steps of added stages */
select cuelight_{name}_check(array(select id from {tasks} where state <> 'completed')),
       cuelight_{name}_reconcile(array(select id from {tasks} where state in ('pending', 'inprogress')))`

// checkPreviousWorkers returns an error if a worker runs: it has the previous stages, and
// the changed tables would reject what it reports.
func (s *Store) checkPreviousWorkers(ctx context.Context) error {
	var host string
	var pid int
	var silence float64
	err := s.queryRow(ctx, previousWorkerSQL).Scan(&host, &pid, &silence)
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
	name := strings.TrimSuffix(strings.TrimPrefix(constraint, s.graph.prefix+"tasks_"), "_needs")
	if i, ok := s.graph.index[name]; ok && state == statement.CheckViolation {
		return fmt.Errorf("%w: stage %q has started in some tasks that have not completed what it needs now (%s); "+
			"let the program with the previous stages complete these tasks", ErrSchemaShape, name,
			strings.Join(s.graph.nodes[i].Needs, ", "))
	}
	return s.explain("change stages", err)
}
