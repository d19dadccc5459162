package invariant

import (
	"strings"
	"text/template"

	"github.com/cuelight/cuelight/store"
)

// words are what the statements are filled with: a pipeline's names.
type words struct {
	Pipeline, Tasks, Attempts, Events string
	Stages                            []stageWords
	Most                              int
}

type stageWords struct {
	Name  string
	Needs []string
}

func wordsOf(g store.Graph) words {
	w := words{Pipeline: g.Name(), Tasks: g.Name() + "_tasks", Attempts: g.Name() + "_attempts", Events: g.Name() + "_events", Most: mostPerRule}
	if g.Name() == "video" {
		w.Tasks, w.Attempts, w.Events = "tasks", "attempts", "events"
	}
	names := g.Stages()
	for _, name := range names {
		w.Stages = append(w.Stages, stageWords{Name: name})
	}
	for i, name := range names {
		for _, next := range g.Feeds(i) {
			w.Stages[next].Needs = append(w.Stages[next].Needs, name)
		}
	}
	return w
}

// Names lists the stages as SQL strings.
func (w words) Names() string {
	var names []string
	for _, s := range w.Stages {
		names = append(names, "'"+s.Name+"'")
	}
	return strings.Join(names, ", ")
}

// NeedsCompleted says that nothing the stage needs is missing.
func (s stageWords) NeedsCompleted() string {
	met := "true"
	for _, need := range s.Needs {
		met += " and t." + need + "_status = 'completed'"
	}
	return met
}

// fill writes a statement out, with the common tables before it.
func (w words) fill(sql string) string {
	t := template.Must(template.New("").Parse(commonSQL + sql + limitSQL))
	var b strings.Builder
	if err := t.Execute(&b, w); err != nil {
		panic(err) // the texts are part of the program
	}
	return strings.TrimSpace(b.String())
}
