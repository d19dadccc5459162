package store

import (
	"fmt"
	"slices"
	"strings"
)

// checkData is one of the functions that check the rows of tasks, for some of the stages: a function can have
// a hundred parameters.
type checkData struct {
	templateData // with these stages only

	Function, Constraint string
	IsFirst              bool // it also checks what is not about stages

	columns []column
}

type column struct{ name, sqlType string }

// maxParameters is PostgreSQL's limit for a function (FUNC_MAX_ARGS).
const maxParameters = 100

// Checks returns the functions that check rows, for which the tables have a constraint each.
func (d templateData) Checks() (checks []checkData) {
	for rest := d.Stages; len(rest) > 0; {
		n := len(rest)
		for ; len(d.check(rest[:n], len(checks)).columns) > maxParameters; n-- {
		}
		checks, rest = append(checks, d.check(rest[:n], len(checks))), rest[n:]
	}
	return checks
}

// check returns the function with a number for some stages.
func (d templateData) check(stages []stageData, number int) checkData {
	c := checkData{templateData: d, Function: d.Function("is_valid"), Constraint: d.Tasks + "_valid", IsFirst: number == 0}
	c.Stages = stages
	if !c.IsFirst {
		c.Function, c.Constraint = fmt.Sprint(c.Function, number+1), fmt.Sprint(c.Constraint, number+1)
	}
	c.add("id", "uuid")
	c.add("overridden_by", "uuid")
	if c.IsFirst {
		c.add("source", "text")
		c.add("params", "jsonb")
		c.add("created_at", "timestamptz")
	}
	for _, s := range stages {
		c.add(s.Name+"_status", "cuelight_status")
		c.add(s.Name+"_attempts", "integer")
		c.add(s.Name+"_token", "uuid")
		c.add(s.Name+"_locked_at", "timestamptz")
		c.add(s.Name+"_locked_by", "uuid")
		c.add(s.Name+"_run_at", "timestamptz")
		if s.Divides {
			c.add(s.Name+"_open_parts", "integer")
		}
	}
	for _, s := range stages {
		for _, need := range s.Needs {
			c.add(need+"_status", "cuelight_status")
		}
	}
	return c
}

func (c *checkData) add(name, sqlType string) {
	if one := (column{name, sqlType}); !slices.Contains(c.columns, one) {
		c.columns = append(c.columns, one)
	}
}

// Parameters are the columns with their types.
func (c checkData) Parameters() string {
	return c.inLines(func(col column) string { return col.name + " " + col.sqlType })
}

// Columns are the columns that the constraint passes.
func (c checkData) Columns() string { return c.inLines(func(col column) string { return col.name }) }

// inLines writes a few columns into each line.
func (c checkData) inLines(text func(column) string) string {
	var b strings.Builder
	width := 0
	for i, col := range c.columns {
		item := text(col)
		if i < len(c.columns)-1 {
			item += ", "
		}
		if width += len(item); width > 100 {
			b.WriteString("\n     ")
			width = len(item)
		}
		b.WriteString(item)
	}
	return strings.ReplaceAll(b.String(), ", \n", ",\n")
}
