package store

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"text/template"
)

const (
	// SchemaVersion is the version of the tables this package works with: the number of the last file
	// in ddl/migrations.
	SchemaVersion = 15
	// oldestProgram is the oldest SchemaVersion of programs that can use these tables, too. A migration
	// only adds to the tables, so that programs of the version before work on; it may remove what
	// only older programs need.
	oldestProgram = 13
	// oldestSchema is the oldest version of tables that Migrate can upgrade.
	oldestSchema = 13
)

//go:embed ddl/*.tmpl ddl/migrations/*.tmpl
var ddlFiles embed.FS

var ddlTemplates = template.Must(template.New("").Funcs(templateFuncs).ParseFS(ddlFiles, "ddl/*.tmpl", "ddl/migrations/*.tmpl"))

// migrations are the files that upgrade tables of earlier versions, in order. Each has all changes of one
// version, except those of triggers.sql, which replaces all its functions and triggers.
var migrations = findMigrations()

type migration struct {
	version  int // of the tables after it
	template string
}

func findMigrations() (all []migration) {
	files, err := fs.Glob(ddlFiles, "ddl/migrations/*.tmpl") // sorted
	if err != nil {
		panic(err)
	}
	for _, file := range files {
		name := path.Base(file)
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			panic(fmt.Sprintf("migration %s has no number", file))
		}
		all = append(all, migration{version, name})
	}
	return all
}

// Migrations lists the names of the migrations that upgrade tables of an earlier version, in order.
func Migrations(from int) (names []string) {
	for _, m := range migrations {
		if m.version > from {
			names = append(names, strings.TrimSuffix(m.template, ".sql.tmpl"))
		}
	}
	return names
}

// migrationSQL returns the statements that upgrade tables of an earlier version.
func (g Graph) migrationSQL(from int) (files []string) {
	for _, m := range migrations {
		if m.version > from {
			files = append(files, g.render(m.template, nil))
		}
	}
	return files
}

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
