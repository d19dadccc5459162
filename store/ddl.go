package store

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// SchemaVersion is the version of the tables this package works with.
const SchemaVersion = 6

//go:embed ddl/*.tmpl
var ddlFiles embed.FS

var ddlTemplates = template.Must(template.ParseFS(ddlFiles, "ddl/*.tmpl"))

// SchemaSQL writes the tables of a pipeline, their constraints and indexes.
// For [Video] it is schema.sql to the letter.
func (g Graph) SchemaSQL() string { return g.render("schema.sql.tmpl") }

// TriggersSQL writes the triggers and functions of a pipeline. For [Video] it
// is triggers.sql to the letter.
func (g Graph) TriggersSQL() string { return g.render("triggers.sql.tmpl") }

func (g Graph) render(name string) string {
	var b strings.Builder
	if err := ddlTemplates.ExecuteTemplate(&b, name, g.words()); err != nil {
		panic(fmt.Sprintf("template %s: %v", name, err)) // the templates are part of the program
	}
	return b.String()
}

// words is what the SQL templates are filled with: the names of one pipeline
// and, per stage, the conditions that the table, the triggers and the
// statements must word alike, else PostgreSQL does not see that a statement
// may use a partial index.
type words struct {
	Name, Prefix, Tasks, Attempts, Outbox string
	Shape, RecallChannel, EventsChannel   string
	Version                               int
	Stages                                []stageWords
}

type stageWords struct {
	Name    string
	Channel string
	Needs   []string
	Feeds   []string
	Above   []string
	Bit     int
}

func (g Graph) words() words {
	w := words{
		Name: g.name, Prefix: g.prefix(), Tasks: g.tasks(), Attempts: g.prefix() + "attempts", Outbox: g.prefix() + "outbox",
		Shape: g.String(), RecallChannel: g.RecallChannel(), EventsChannel: g.EventsChannel(), Version: SchemaVersion,
	}
	for i, n := range g.nodes {
		s := stageWords{Name: n.Name, Channel: g.Channel(n.Name), Needs: n.Needs, Bit: 1 << i}
		for _, j := range g.feeds[i] {
			s.Feeds = append(s.Feeds, g.nodes[j].Name)
		}
		for _, j := range g.above[i] {
			s.Above = append(s.Above, g.nodes[j].Name)
		}
		w.Stages = append(w.Stages, s)
	}
	return w
}

// ShapeLines is the shape for a comment, with a line per stage.
func (w words) ShapeLines() string { return strings.ReplaceAll(w.Shape, "; ", ";\n-- ") }

// CountAtMost is up to where is counted.
func (w words) CountAtMost() int { return CountAtMost }

// Function names a function of this pipeline.
func (w words) Function(verb string) string { return "cuelight_" + w.Name + "_" + verb }

// Names lists the stages for a sentence.
func (w words) Names() string {
	var names []string
	for _, s := range w.Stages {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// Each lists a column of every stage, in lines of up to 85 bytes.
func (w words) Each(row, suffix string) string {
	var list, line string
	for i, s := range w.Stages {
		col := row + s.Name + suffix
		if i < len(w.Stages)-1 {
			col += ", "
		}
		if len(line)+len(col) > 85 {
			list, line = list+strings.TrimSuffix(line, " ")+"\n           ", ""
		}
		line += col
	}
	return list + line
}

// Any says that at least one stage has the status.
func (w words) Any(row, status string) string {
	var parts []string
	for _, s := range w.Stages {
		parts = append(parts, fmt.Sprintf("%s%s_status = '%s'", row, s.Name, status))
	}
	return strings.Join(parts, "\n     or ")
}

// Untried says that no stage of a task has attempts, and that it could not be claimed
// yet. A claim that was given back is no attempt, and leaves ready_at.
func (w words) Untried(row string) string {
	return "greatest(" + w.Each(row, "_attempts") + ") = 0\n        and " + row + "ready_at is null"
}

// Scheduled lists the times that stages which need nothing wait for, before the
// task could be claimed for the first time.
func (w words) Scheduled() string {
	var times []string
	for _, s := range w.Stages {
		if len(s.Needs) == 0 {
			times = append(times, fmt.Sprintf("case when %[1]s_status = 'pending' and %[1]s_attempts = 0 and ready_at is null\n         then %[1]s_run_at end", s.Name))
		}
	}
	return strings.Join(times, ", ")
}

// StillScheduled says, in the function that does stages of the task t again, that it
// waits for the time it was submitted for: as before, or once more.
func (w words) StillScheduled() string {
	var parts []string
	for _, s := range w.Stages {
		if len(s.Needs) == 0 {
			parts = append(parts, fmt.Sprintf(`(case when %[1]s_retried
                          then from_stage is null and %[1]s_status = 'cancelled' and scheduled_at > now()
                          else %[1]s_status = 'pending' and %[1]s_attempts = 0
                               and %[1]s_run_at is not null and ready_at is null end)`, s.Name))
		}
	}
	return strings.Join(parts, "\n                     and ")
}

// StatusOf is the status of a task as a whole, as it is worded in an index.
func (w words) StatusOf(row string) string {
	statuses := w.Each(row, "_status")
	var scheduled []string
	for _, s := range w.Stages {
		if len(s.Needs) == 0 {
			scheduled = append(scheduled, row+s.Name+"_run_at is not null")
		}
	}
	return strings.Join([]string{
		"(case when 'dead' in (" + statuses + ")", "     then 'dead'",
		"when 'cancelled' in (" + statuses + ")", "     then 'cancelled'",
		"when least(" + statuses + ") = 'completed'",
		" and greatest(" + statuses + ") = 'completed'", "     then 'completed'",
		"when 'inprogress' in (" + statuses + ")", "     then 'inprogress'",
		"when 'failed' in (" + statuses + ")", "     then 'failed'",
		"when 'completed' in (" + statuses + ")", "     then 'inprogress'",
		"when " + strings.Join(scheduled, " and "),
		" and " + w.Untried(row), "     then 'scheduled'",
		"else 'pending' end)",
	}, "\n       ")
}

// HasStatusIndex says that a task is in the index of statuses: it is finished, a
// stage of it failed, or waits for a time. A task that goes on as it should is only
// there when all is done.
func (w words) HasStatusIndex(row string) string {
	statuses := w.Each(row, "_status")
	return "(least(" + statuses + ") >= 'completed'\n    or greatest(" + statuses + ") >= 'failed'\n    or coalesce(" + w.Each(row, "_run_at") + ") is not null)"
}

// The first column of the index of statuses: a task does not wait for a time; or it
// does, and could not be claimed before; or it does, and could.
const (
	waitsNot     = 0
	waitsUntried = 1
	waitsTried   = 2
)

// WaitsFor is the first column of the index of statuses. PostgreSQL copies the text of
// an index for every statement that changes a task, so it is short.
func (w words) WaitsFor(row string) string {
	return "(case when coalesce(" + w.Each(row, "_run_at") + ") is null then 0\n        when " + w.Untried(row) + " then 1 else 2 end)"
}

// Furthest is the second: of the statuses of the stages the one that is the last of
// pending, inprogress, completed, failed, dead and cancelled.
func (w words) Furthest(row string) string { return "greatest(" + w.Each(row, "_status") + ")" }

// indexed are conditions on a row that the index of statuses serves, one for each way
// to wait.
func (w words) indexed(row string, furthest Status, waits ...int) (conditions []string) {
	for _, n := range waits {
		conditions = append(conditions, fmt.Sprintf("%s = %d and %s = '%s' and %s", w.WaitsFor(row), n, w.Furthest(row), furthest, w.HasStatusIndex(row)))
	}
	return conditions
}

// IsScheduled says that a task is [StatusScheduled].
func (w words) IsScheduled(row string) string {
	return w.indexed(row, StatusPending, waitsUntried)[0] + " and " + w.StatusOf(row) + " = 'scheduled'"
}

// Retrying are conditions of which a task that is [OnlyRetrying] meets one.
func (w words) Retrying(row string) []string {
	return slices.Concat(
		w.indexed(row, StatusFailed, waitsNot, waitsUntried, waitsTried), w.indexed(row, StatusCompleted, waitsUntried, waitsTried),
		w.indexed(row, StatusInProgress, waitsUntried, waitsTried), w.indexed(row, StatusPending, waitsTried))
}

// ScheduledSQL is the condition that a task is [StatusScheduled], on the columns of the
// row named, such as "t.". An index has it.
func (g Graph) ScheduledSQL(row string) string { return g.words().IsScheduled(row) }

// RetryingSQL are conditions, each with an index, of which a task that is [OnlyRetrying]
// meets one.
func (g Graph) RetryingSQL(row string) []string { return g.words().Retrying(row) }

// Alive says that the worker is registered and was not given up.
func (w words) Alive(worker string) string {
	return "exists (select from workers where id = " + worker + " and stopped_at is null and lost_at is null)"
}

// Chained says, of a row of complete, that the task goes on in this turn.
func (w words) Chained() string {
	var parts []string
	for _, s := range w.Stages {
		if len(s.Needs) > 0 {
			parts = append(parts, s.Name+"_next")
		}
	}
	return strings.Join(append(parts, "false"), " or ")
}

// NeedsText names what a stage needs, with its verb.
func (s stageWords) NeedsText() string {
	verb := " is"
	if len(s.Needs) > 1 {
		verb = " are"
	}
	return strings.Join(s.Needs, " and ") + verb
}

// NeedsCompleted says that all a stage needs is completed.
func (s stageWords) NeedsCompleted(row string) string {
	var parts []string
	for _, n := range s.Needs {
		parts = append(parts, row+n+"_status = 'completed'")
	}
	return strings.Join(parts, "\n    and ")
}

// Open says that a stage is to be done and nothing it needs is missing; it may
// have to wait for a time.
func (s stageWords) Open(row string) string {
	open := row + s.Name + "_status in ('pending', 'failed')"
	if len(s.Needs) > 0 {
		open += " and " + s.NeedsCompleted(row)
	}
	return open
}

// Ready says that a stage can be claimed now.
func (s stageWords) Ready(row string) string {
	return s.Open(row) + " and " + row + s.Name + "_run_at is null"
}

// Waited is for how long the task t could have been claimed: since it was submitted,
// was due or was done again by hand; or since an attempt at the stage, or at what it
// needs, ended, or was to be followed by the next.
func (s stageWords) Waited(attempts string) string {
	return fmt.Sprintf(`now() - greatest(t.created_at, t.ready_at,
              (select max(coalesce(retry_at, finished_at)) from %s a
                where a.task_id = t.id and a.stage in ('%s')))`, attempts, strings.Join(append([]string{s.Name}, s.Needs...), "', '"))
}

// AboveText lists the stage and all it needs as SQL strings.
func (s stageWords) AboveText() string { return "'" + strings.Join(s.Above, "', '") + "'" }
