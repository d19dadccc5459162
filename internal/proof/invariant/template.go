package invariant

import (
	"slices"
	"strings"
	"text/template"

	"github.com/cuelight/cuelight/store"
)

// sqlNames are a pipeline's names, which the rules' statements are filled with.
type sqlNames struct {
	Pipeline, Tasks, Parts, Attempts, Events, Outbox, Deleted string
	Stages                                                    []stageNames
	MaxPerRule                                                int
}

type stageNames struct {
	Name    string
	Needs   []string
	Divides bool
}

func namesOf(g store.Graph) sqlNames {
	prefix := g.TablePrefix()
	n := sqlNames{
		Pipeline: g.Name(), Tasks: prefix + "tasks", Parts: prefix + "parts", Attempts: prefix + "attempts",
		Events: prefix + "events", Outbox: prefix + "outbox", Deleted: prefix + "deleted_tasks", MaxPerRule: maxPerRule,
	}
	stages := g.Stages()
	for i, name := range stages {
		n.Stages = append(n.Stages, stageNames{Name: name, Divides: g.Divides(i)})
	}
	for i, name := range stages {
		for _, next := range g.Feeds(i) {
			n.Stages[next].Needs = append(n.Stages[next].Needs, name)
		}
	}
	return n
}

// HasParts reports whether a stage divides.
func (n sqlNames) HasParts() bool {
	return slices.ContainsFunc(n.Stages, func(s stageNames) bool { return s.Divides })
}

// NameList returns the stages as a list of SQL strings.
func (n sqlNames) NameList() string {
	var quoted []string
	for _, s := range n.Stages {
		quoted = append(quoted, "'"+s.Name+"'")
	}
	return strings.Join(quoted, ", ")
}

// NeedsCompleted returns the condition that all stages which this one needs are completed.
func (s stageNames) NeedsCompleted() string {
	condition := "true"
	for _, need := range s.Needs {
		condition += " and t." + need + "_status = 'completed'"
	}
	return condition
}

// fill returns a rule's statement for this pipeline, after the common tables.
func (n sqlNames) fill(sql string) string {
	t := template.Must(template.New("").Parse(commonSQL + sql + limitSQL))
	var b strings.Builder
	if err := t.Execute(&b, n); err != nil {
		panic(err) // the statements are constants
	}
	return strings.TrimSpace(b.String())
}
