package store

import (
	"fmt"
	"regexp"
	"strings"
)

// SQL fills in the names of a pipeline's tables, so that programs can write statements of their own for them:
//
//	{tasks} {steps} {attempts} {outbox} {workers} {pauses} {deleted_tasks} …  its tables, and the view {events}
//	{name}                                    the pipeline's name, in those of functions and channels: cuelight_{name}_status
//	{statuses t.}                             the status columns of a row t, separated by commas
//	{flip: 'completed'}                       of an update of tasks: sets the status of all stages in the array c.stages;
//	                                          STAGE in it is the name of each stage
func (g Graph) SQL(text string) string {
	text = placeholder.ReplaceAllStringFunc(text, func(match string) string {
		name := match[1 : len(match)-1]
		switch {
		case name == "name":
			return g.name
		case strings.HasPrefix(name, "statuses"):
			return g.statuses(strings.TrimSpace(strings.TrimPrefix(name, "statuses")))
		}
		return g.prefix + name
	})
	return strings.TrimSpace(flip.ReplaceAllStringFunc(text, func(match string) string {
		return g.flips(flip.FindStringSubmatch(match)[1])
	}))
}

var (
	placeholder = regexp.MustCompile(`\{(name|statuses( [a-z]+\.)?|tasks|steps|positions|attempts|outbox|outbox_id|event_epoch|events|` +
		`workers|pauses|pipeline|deleted_tasks)\}`)
	flip = regexp.MustCompile(`\{flip: (.*)\}`)
)

// flips lists what sets the status of stages in an update.
func (g Graph) flips(status string) string {
	lines := make([]string, len(g.nodes))
	for i, n := range g.nodes {
		lines[i] = fmt.Sprintf("%[1]s_status = case when '%[1]s' = any (c.stages) then %[2]s else %[1]s_status end",
			n.Name, strings.ReplaceAll(status, "STAGE", "'"+n.Name+"'"))
	}
	return strings.Join(lines, ",\n         ")
}

// statuses lists the status columns of a row.
func (g Graph) statuses(row string) string {
	columns := make([]string, len(g.nodes))
	for i, n := range g.nodes {
		columns[i] = row + n.Name + "_status"
	}
	return strings.Join(columns, ", ")
}
