package store

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Node is one stage of a [Graph]: its name and the stages that must be
// completed before it may start.
type Node struct {
	Name  string
	Needs []string
}

// Graph is the shape of a pipeline, checked by [NewGraph]: which stages there
// are and which needs which. The table of a pipeline, its triggers and every
// statement of a [Store] follow from it.
type Graph struct {
	name   string
	nodes  []Node
	index  map[string]int
	needs  [][]int // by stage: the stages it needs
	feeds  [][]int // by stage: the stages that need it
	above  [][]int // by stage: itself and all it needs, directly or not
	byName []string
}

// Video is the graph of the built-in pipeline, the one schema.sql and
// triggers.sql write out.
func Video() Graph {
	g, err := NewGraph("video",
		Node{Name: "ingest"},
		Node{Name: "transcode", Needs: []string{"ingest"}},
		Node{Name: "metadata", Needs: []string{"ingest"}},
		Node{Name: "assemble", Needs: []string{"transcode", "metadata"}},
		Node{Name: "publish", Needs: []string{"assemble"}},
	)
	if err != nil {
		panic(err)
	}
	return g
}

// ErrGraph is what every error of [NewGraph] wraps.
var ErrGraph = errors.New("unusable pipeline")

const (
	maxStages     = 31 // a set of stages is sent as the bits of an int4
	maxIdentifier = 63 // PostgreSQL cuts longer identifiers (NAMEDATALEN - 1)
)

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// NewGraph checks a pipeline's shape. Names are lower-case letters, digits and
// underscores, beginning with a letter; no two stages share one; every need
// names a stage; nothing needs itself, directly or not; and every identifier
// made of the names fits PostgreSQL's 63 bytes. The pipeline named "video" has
// the tables tasks and attempts; any other, say "podcast", has podcast_tasks
// and podcast_attempts.
func NewGraph(name string, nodes ...Node) (Graph, error) {
	g := Graph{name: name, nodes: nodes, index: make(map[string]int, len(nodes))}
	if err := g.checkNames(); err != nil {
		return Graph{}, fmt.Errorf("pipeline %q: %w: %w", name, ErrGraph, err)
	}
	if err := g.link(); err != nil {
		return Graph{}, fmt.Errorf("pipeline %q: %w: %w", name, ErrGraph, err)
	}
	return g, nil
}

func (g *Graph) checkNames() error {
	if !nameForm.MatchString(g.name) {
		return errors.New("a pipeline's name is lower-case letters, digits and underscores, beginning with a letter")
	}
	if id := g.tasks() + "_overridden_by_fkey"; len(id) > maxIdentifier {
		return fmt.Errorf("%q is longer than PostgreSQL's %d bytes: shorten the name", id, maxIdentifier)
	}
	if len(g.nodes) == 0 {
		return errors.New("it has no stages")
	}
	if len(g.nodes) > maxStages {
		return fmt.Errorf("it has %d stages; %d is the most", len(g.nodes), maxStages)
	}
	for i, n := range g.nodes {
		if !nameForm.MatchString(n.Name) {
			return fmt.Errorf("stage %q: a name is lower-case letters, digits and underscores, beginning with a letter", n.Name)
		}
		if _, twice := g.index[n.Name]; twice {
			return fmt.Errorf("two stages are named %q", n.Name)
		}
		for _, id := range []string{g.tasks() + "_" + n.Name + "_waiting", g.Channel(n.Name)} {
			if len(id) > maxIdentifier {
				return fmt.Errorf("stage %q: %q is longer than PostgreSQL's %d bytes: shorten the name", n.Name, id, maxIdentifier)
			}
		}
		g.index[n.Name] = i
		g.byName = append(g.byName, n.Name)
	}
	return nil
}

func (g *Graph) link() error {
	g.needs = make([][]int, len(g.nodes))
	g.feeds = make([][]int, len(g.nodes))
	g.above = make([][]int, len(g.nodes))
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
		if err := g.climb(i, nil); err != nil {
			return err
		}
	}
	return nil
}

// climb fills above[i]; path is how it came here, so that a circle can be
// shown and not only stated.
func (g *Graph) climb(i int, path []string) error {
	if g.above[i] != nil {
		return nil
	}
	if at := slices.Index(path, g.nodes[i].Name); at >= 0 {
		return fmt.Errorf("stages need each other in a circle: %s", strings.Join(append(path[at:], g.nodes[i].Name), " needs "))
	}
	path = append(path, g.nodes[i].Name)
	all := []int{i}
	for _, j := range g.needs[i] {
		if err := g.climb(j, path); err != nil {
			return err
		}
		all = append(all, g.above[j]...)
	}
	slices.Sort(all)
	g.above[i] = slices.Compact(all)
	return nil
}

// Name is the pipeline's name.
func (g Graph) Name() string { return g.name }

// Stages lists the names of the stages in the order they were given. A
// stage's place in it is its number in a [Turn].
func (g Graph) Stages() []string { return slices.Clone(g.byName) }

// Stage is the number of the named stage, and whether there is one.
func (g Graph) Stage(name string) (int, bool) {
	i, ok := g.index[name]
	return i, ok
}

// Feeds lists the numbers of the stages that need stage i.
func (g Graph) Feeds(i int) []int { return g.feeds[i] }

// Upstream lists the numbers of stage i and of all stages that it needs, directly or not.
func (g Graph) Upstream(i int) []int { return g.above[i] }

// Channel is the NOTIFY channel of a stage: a message there says that the
// stage may have something to claim.
func (g Graph) Channel(stage string) string { return "cuelight_" + g.name + "_" + stage }

// RecallChannel is the NOTIFY channel of the pipeline as a whole: a message
// there says that claims were taken from their workers, by a cancel or by
// hand, and that everyone should check their own; or that people want something
// else of the workers: a pause, a drain.
func (g Graph) RecallChannel() string { return "cuelight_" + g.name }

// EventsChannel is the NOTIFY channel of those who read the pipeline's events: a
// message there says that workers have written some. What others write is notified
// of on the other channels, so readers listen on all of them.
func (g Graph) EventsChannel() string { return "cuelight_" + g.name + "_events" }

// prefix sets the tables of all pipelines but the built-in one apart.
func (g Graph) prefix() string {
	if g.name == "video" {
		return ""
	}
	return g.name + "_"
}

func (g Graph) tasks() string { return g.prefix() + "tasks" }

// String is the graph's shape in one line. It is kept in the database, so that
// a program with another idea of the pipeline is told so.
func (g Graph) String() string {
	var b strings.Builder
	for i, n := range g.nodes {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(n.Name)
		if len(n.Needs) > 0 {
			b.WriteString(" needs " + strings.Join(n.Needs, ", "))
		}
	}
	return b.String()
}
