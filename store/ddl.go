package store

import (
	"embed"
	"fmt"
	"strings"
	"text/template"
)

// SchemaVersion is the version of the tables this package works with.
const SchemaVersion = 1

//go:embed ddl/*.tmpl
var ddlFiles embed.FS

var ddlTemplates = template.Must(template.New("").ParseFS(ddlFiles, "ddl/*.tmpl"))

// SchemaSQL returns the DDL of a pipeline's tables, constraints and indexes. For [Video] it equals schema.sql.
func (g Graph) SchemaSQL() string { return g.render("schema.sql.tmpl", nil) }

// TriggersSQL returns the DDL of a pipeline's triggers and functions. For [Video] it equals triggers.sql.
func (g Graph) TriggersSQL() string { return g.render("triggers.sql.tmpl", nil) }

func (g Graph) render(name string, with any) string {
	var b strings.Builder
	if err := ddlTemplates.ExecuteTemplate(&b, name, g.templateData(with)); err != nil {
		panic(fmt.Sprintf("template %s: %v", name, err))
	}
	return g.SQL(b.String()) + "\n"
}

// templateData is the input of the DDL templates: what they say of each stage.
type templateData struct {
	Version int
	Shape   string
	Stages  []stageData
	With    any
}

type stageData struct {
	Name     string
	Needs    []string
	Upstream []string // itself and all it needs, directly or not
	Divides  bool

	downstream []string // itself and all that need it, directly or not
}

func (g Graph) templateData(with any) templateData {
	d := templateData{Version: SchemaVersion, Shape: g.String(), With: with}
	for i, n := range g.nodes {
		s := stageData{Name: n.Name, Needs: n.Needs, Divides: n.Divides}
		for _, j := range g.upstream[i] {
			s.Upstream = append(s.Upstream, g.nodes[j].Name)
		}
		d.Stages = append(d.Stages, s)
	}
	for i := range d.Stages {
		for _, name := range d.Stages[i].Upstream {
			s := &d.Stages[g.index[name]]
			s.downstream = append(s.downstream, d.Stages[i].Name)
		}
	}
	return d
}

// ShapeLines is the shape with a line per stage, for an SQL comment.
func (d templateData) ShapeLines() string { return strings.ReplaceAll(d.Shape, "; ", ";\n--   ") }

// Each lists something of every stage, in lines of up to 85 bytes.
func (d templateData) Each(before, after string) string {
	return d.list(func(s stageData) string { return before + s.Name + after })
}

func (d templateData) list(text func(stageData) string) string {
	var list, line string
	for i, s := range d.Stages {
		item := text(s)
		if i < len(d.Stages)-1 {
			item += ", "
		}
		if len(line)+len(item) > 85 {
			list, line = list+strings.TrimSuffix(line, " ")+"\n           ", ""
		}
		line += item
	}
	return list + line
}

// Names lists the stages for a sentence.
func (d templateData) Names() string { return strings.Join(d.names(nil), ", ") }

// Any is an array of the stages.
func (d templateData) Any() string { return array(d.names(nil)) }

// First is an array of the stages that need none.
func (d templateData) First() string {
	return array(d.names(func(s stageData) bool { return len(s.Needs) == 0 }))
}

// Divided is an array of the stages that divide.
func (d templateData) Divided() string {
	return array(d.names(func(s stageData) bool { return s.Divides }))
}

func (d templateData) names(which func(stageData) bool) (names []string) {
	for _, s := range d.Stages {
		if which == nil || which(s) {
			names = append(names, s.Name)
		}
	}
	return names
}

// array is a literal of stages. Without quotes a stage named null would be no text.
func array(names []string) string {
	list := "," + strings.Join(names, ",") + ","
	return "'{" + strings.Trim(strings.ReplaceAll(list, ",null,", `,"null",`), ",") + "}'::text[]"
}

// NeedsCompleted is the condition that all stages it needs are completed in a row t of tasks.
func (s stageData) NeedsCompleted() string {
	conditions := make([]string, len(s.Needs))
	for i, name := range s.Needs {
		conditions[i] = "t." + name + "_status = 'completed'"
	}
	return strings.Join(conditions, " and ")
}

// Downstream is an array of the stage and all that need it.
func (s stageData) Downstream() string { return array(s.downstream) }
