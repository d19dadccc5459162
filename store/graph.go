package store

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Node is one stage of a [Graph]: its name, and the stages that must be completed
// before it may start.
type Node struct {
	Name  string
	Needs []string
	// Divides says that the stage may be divided into parts, steps which different workers may work on.
	Divides bool
}

// Graph is the checked shape of a pipeline: its stages and what each needs. The
// pipeline's tables, triggers and statements are generated from it. [NewGraph] makes it.
type Graph struct {
	name     string
	prefix   string // of the tables
	nodes    []Node
	index    map[string]int
	needs    [][]int // by stage: the stages it needs
	feeds    [][]int // by stage: the stages that need it
	upstream [][]int // by stage: itself and all it needs, directly or not
	divided  []int   // stages that divide
}

// Video is the graph of the built-in pipeline, which schema.sql and triggers.sql
// show. Its tables have no prefix.
func Video() Graph {
	g, err := NewGraph("video",
		Node{Name: "ingest"},
		Node{Name: "transcode", Needs: []string{"ingest"}, Divides: true},
		Node{Name: "metadata", Needs: []string{"ingest"}},
		Node{Name: "assemble", Needs: []string{"transcode", "metadata"}},
		Node{Name: "publish", Needs: []string{"assemble"}},
	)
	if err == nil {
		g, err = g.WithTablePrefix("")
	}
	if err != nil {
		panic(err)
	}
	return g
}

// ErrGraph is what every error of [NewGraph] wraps.
var ErrGraph = errors.New("unusable pipeline")

// maxStages: a function of PostgreSQL has up to 100 parameters.
const maxStages = 100

// maxIdentifier: PostgreSQL cuts longer identifiers (NAMEDATALEN - 1).
const maxIdentifier = 63

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// NewGraph checks a pipeline's shape. A name consists of lower-case letters, digits
// and underscores and starts with a letter. Stage names are unique, every need names
// another stage, no stage needs itself, directly or not, and all identifiers made of
// the names fit PostgreSQL's 63 bytes. All errors wrap [ErrGraph].
//
// The tables of a pipeline are prefixed with its name: podcast has podcast_tasks and
// podcast_attempts. See [Graph.WithTablePrefix].
func NewGraph(name string, nodes ...Node) (Graph, error) {
	g := Graph{name: name, prefix: name + "_", nodes: nodes, index: make(map[string]int, len(nodes))}
	err := g.indexNames()
	if err == nil {
		err = g.checkIdentifiers()
	}
	if err == nil {
		err = g.link()
	}
	if err != nil {
		return Graph{}, fmt.Errorf("pipeline %q: %w: %w", name, ErrGraph, err)
	}
	return g, nil
}

// WithTablePrefix returns the same graph for tables of another prefix, such as
// "media_", or none. Two pipelines in one schema need different prefixes. A prefix
// has the form of a name.
func (g Graph) WithTablePrefix(prefix string) (Graph, error) {
	g.prefix = prefix
	err := g.checkIdentifiers()
	if prefix != "" && !nameForm.MatchString(prefix) {
		err = fmt.Errorf("table prefix %q: %w", prefix, errNameForm)
	}
	if err != nil {
		return Graph{}, fmt.Errorf("pipeline %q: %w: %w", g.name, ErrGraph, err)
	}
	return g, nil
}

var errNameForm = errors.New("a name consists of lower-case letters, digits and underscores, and starts with a letter")

func (g *Graph) indexNames() error {
	if !nameForm.MatchString(g.name) {
		return errNameForm
	}
	if len(g.nodes) == 0 {
		return errors.New("it has no stages")
	}
	if len(g.nodes) > maxStages {
		return fmt.Errorf("it has %d stages; the maximum is %d", len(g.nodes), maxStages)
	}
	for i, n := range g.nodes {
		if !nameForm.MatchString(n.Name) {
			return fmt.Errorf("stage %q: %w", n.Name, errNameForm)
		}
		if _, twice := g.index[n.Name]; twice {
			return fmt.Errorf("two stages are named %q", n.Name)
		}
		g.index[n.Name] = i
		if n.Divides {
			g.divided = append(g.divided, i)
		}
	}
	return nil
}

// checkIdentifiers checks the longest identifiers that the tables and channels need.
func (g *Graph) checkIdentifiers() error {
	ids := []string{g.prefix + "deleted_tasks_unpublish", "cuelight_" + g.name + "_event_watermark"}
	for _, n := range g.nodes {
		ids = append(ids, g.prefix+"tasks_"+n.Name+"_needs", g.Channel(n.Name))
	}
	for _, id := range ids {
		if len(id) > maxIdentifier {
			return fmt.Errorf("identifier %q is longer than PostgreSQL's %d bytes; shorten the name", id, maxIdentifier)
		}
	}
	return nil
}

func (g *Graph) link() error {
	g.needs = make([][]int, len(g.nodes))
	g.feeds = make([][]int, len(g.nodes))
	g.upstream = make([][]int, len(g.nodes))
	for i, n := range g.nodes {
		for _, need := range n.Needs {
			j, ok := g.index[need]
			switch {
			case !ok:
				return fmt.Errorf("stage %q needs %q, which is not a stage", n.Name, need)
			case j == i:
				return fmt.Errorf("stage %q needs itself", n.Name)
			case slices.Contains(g.needs[i], j):
				return fmt.Errorf("stage %q needs %q twice", n.Name, need)
			}
			g.needs[i] = append(g.needs[i], j)
			g.feeds[j] = append(g.feeds[j], i)
		}
	}
	for i := range g.nodes {
		if err := g.addUpstream(i, nil); err != nil {
			return err
		}
	}
	return nil
}

// addUpstream fills upstream[i]. The path leads from a stage to stage i, so that the
// error can show a circle.
func (g *Graph) addUpstream(i int, path []string) error {
	if g.upstream[i] != nil {
		return nil
	}
	if at := slices.Index(path, g.nodes[i].Name); at >= 0 {
		return fmt.Errorf("stages need each other in a circle: %s",
			strings.Join(append(path[at:], g.nodes[i].Name), " needs "))
	}
	path = append(path, g.nodes[i].Name)
	all := []int{i}
	for _, j := range g.needs[i] {
		if err := g.addUpstream(j, path); err != nil {
			return err
		}
		all = append(all, g.upstream[j]...)
	}
	slices.Sort(all)
	g.upstream[i] = slices.Compact(all)
	return nil
}

// Name returns the pipeline's name.
func (g Graph) Name() string { return g.name }

// TablePrefix returns the prefix of the pipeline's tables, such as "podcast_".
func (g Graph) TablePrefix() string { return g.prefix }

// Divides reports whether stage i may be divided into parts.
func (g Graph) Divides(i int) bool { return g.nodes[i].Divides }

// Queues returns how many queues of claims there are: one per stage, by its number, and after them one
// for the parts of each stage that divides.
func (g Graph) Queues() int { return len(g.nodes) + len(g.divided) }

// Queue returns the queue of a stage, or of its parts.
func (g Graph) Queue(stage int, parts bool) int {
	if !parts {
		return stage
	}
	return len(g.nodes) + slices.Index(g.divided, stage)
}

// WorkQueue returns the queue of the claims that a stage's slots are for: of its parts, if it divides.
func (g Graph) WorkQueue(stage int) int { return g.Queue(stage, g.nodes[stage].Divides) }

// QueueStage returns the stage of a queue, and whether the queue is that of its parts.
func (g Graph) QueueStage(queue int) (stage int, parts bool) {
	if queue < len(g.nodes) {
		return queue, false
	}
	return g.divided[queue-len(g.nodes)], true
}

// Stages lists the stages' names in the order given to [NewGraph]. The index of a
// stage is its number.
func (g Graph) Stages() []string {
	names := make([]string, len(g.nodes))
	for i, n := range g.nodes {
		names[i] = n.Name
	}
	return names
}

// Stage returns the number of the named stage, and whether it exists.
func (g Graph) Stage(name string) (int, bool) {
	i, ok := g.index[name]
	return i, ok
}

// Needs lists the numbers of the stages that stage i needs. The caller must not change it.
func (g Graph) Needs(i int) []int { return g.needs[i] }

// Feeds lists the numbers of the stages that need stage i. The caller must not change it.
func (g Graph) Feeds(i int) []int { return g.feeds[i] }

// Upstream lists the numbers of stage i and of all stages that it needs, directly or
// not. The caller must not change it.
func (g Graph) Upstream(i int) []int { return g.upstream[i] }

// Channel returns the NOTIFY channel of a stage. A notification there says that the
// stage may have ready tasks.
func (g Graph) Channel(stage string) string { return "cuelight_" + g.name + "_" + stage }

// ControlChannel returns the NOTIFY channel of the pipeline. A notification there says
// that workers should check their claims, pauses and drains: claims may have been
// revoked, or an operator changed what workers should do.
func (g Graph) ControlChannel() string { return "cuelight_" + g.name }

// EventsChannel returns the NOTIFY channel on which workers announce events. Events of
// other writers are announced on the pipeline's other channels, so a reader of events
// listens on all of them.
func (g Graph) EventsChannel() string { return "cuelight_" + g.name + "_events" }

// String returns the shape in one line. The database keeps it, so that a program with
// another shape notices.
func (g Graph) String() string {
	var b strings.Builder
	for i, n := range g.nodes {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(n.Name)
		if n.Divides {
			b.WriteString(" in parts")
		}
		if len(n.Needs) > 0 {
			b.WriteString(" needs " + strings.Join(n.Needs, ", "))
		}
	}
	return b.String()
}
