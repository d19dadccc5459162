package store

import (
	"embed"
	"text/template"
)

// SchemaVersion is the version of the tables this package works with.
const SchemaVersion = 13

//go:embed ddl/*.tmpl
var ddlFiles embed.FS

var ddlTemplates = template.Must(template.ParseFS(ddlFiles, "ddl/*.tmpl"))

// SchemaSQL returns the DDL of a pipeline's tables, constraints and indexes. For
// [Video] it equals schema.sql.
func (g Graph) SchemaSQL() string { return g.render("schema.sql.tmpl", nil) }

// TriggersSQL returns the DDL of a pipeline's triggers and functions. For [Video] it
// equals triggers.sql.
func (g Graph) TriggersSQL() string { return g.render("triggers.sql.tmpl", nil) }

func (g Graph) render(name string, with any) string {
	d := g.templateData()
	d.With = with
	return execute(ddlTemplates.Lookup(name), d)
}
