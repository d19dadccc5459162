package store

import (
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// SQL fills a statement template with the names and conditions of the pipeline, so
// that programs can write statements of their own for its tables. The template
// language is text/template. It offers
//
//	{{.Tasks}} {{.Attempts}} {{.Outbox}} {{.Prefix}}     names of tables
//	{{if .HasParts}} {{.Parts}} {{end}}                  the table of parts, where stages divide
//	{{.Function "events"}}                               names of functions
//	{{range .Stages}} {{.Name}} {{.Ready "t."}} {{end}}  stages and their conditions on a row t
//	{{.Any "t." "dead"}} {{.StatusOf "t."}}              conditions on a row t
//	{{.With}}                                            the value given
//
// It panics where the template is invalid: templates are part of a program.
func (g Graph) SQL(text string, with any) string {
	d := g.templateData()
	d.With = with
	return fill(text, d)
}

// StageSQL is [Graph.SQL] for a statement about one stage, which the template calls
// {{.Stage}}.
func (g Graph) StageSQL(text string, stage int, with any) string {
	d := g.templateData()
	d.With, d.Stage = with, d.Stages[stage]
	return fill(text, d)
}

var templateFuncs = template.FuncMap{
	"arg":  func(first, i int) int { return first + i },
	"user": userOf,
}

func fill(text string, data any) string {
	t := template.Must(template.New("").Funcs(templateFuncs).Parse(text))
	return strings.TrimSpace(execute(t, data))
}

func execute(t *template.Template, data any) string {
	var b strings.Builder
	if err := t.Execute(&b, data); err != nil {
		panic(fmt.Sprintf("template %s: %v", t.Name(), err))
	}
	return b.String()
}

// templateData is the input of SQL templates: the names of one pipeline, and the
// conditions that tables, triggers and statements must share. PostgreSQL uses a
// partial index only for a statement that repeats the condition of the index.
type templateData struct {
	Name, Prefix, Tasks, Attempts, Outbox string
	Parts                                 string // the table, where stages divide
	HasParts                              bool
	Shape, ControlChannel, EventsChannel  string
	Version, OldestProgram                int
	Stages                                []stageData
	Stage                                 stageData
	With                                  any
}

type stageData struct {
	Name     string
	Tasks    string // the table
	Channel  string
	Needs    []string
	Feeds    []string
	Upstream []string // itself and all it needs, directly or not
	Number   int      // counted from 0
	Bit      int
	Divides  bool

	needs         []int  // their numbers
	placementWait string // the function
}

func (g Graph) templateData() templateData {
	d := templateData{
		Name: g.name, Prefix: g.prefix, Tasks: g.tasks(), Attempts: g.prefix + "attempts", Outbox: g.prefix + "outbox",
		Parts: g.prefix + "parts", HasParts: g.HasParts(),
		Shape: g.String(), ControlChannel: g.ControlChannel(), EventsChannel: g.EventsChannel(), Version: SchemaVersion,
		OldestProgram: oldestProgram,
	}
	for i, n := range g.nodes {
		s := stageData{Name: n.Name, Tasks: d.Tasks, Channel: g.Channel(n.Name), Needs: n.Needs, Number: i, Bit: 1 << i, Divides: n.Divides,
			needs: g.needs[i]}
		s.placementWait = d.Function("placement_wait")
		for _, j := range g.feeds[i] {
			s.Feeds = append(s.Feeds, g.nodes[j].Name)
		}
		for _, j := range g.upstream[i] {
			s.Upstream = append(s.Upstream, g.nodes[j].Name)
		}
		d.Stages = append(d.Stages, s)
	}
	return d
}

// ShapeLines returns the shape with a line per stage, for an SQL comment.
func (d templateData) ShapeLines() string { return strings.ReplaceAll(d.Shape, "; ", ";\n-- ") }

// Function returns the name of a function of this pipeline.
func (d templateData) Function(verb string) string { return "cuelight_" + d.Name + "_" + verb }

// DeletedRow is a row of tasks for the column task of the deleted tasks. It is without user_context, which jsonb would
// rewrite.
func (d templateData) DeletedRow(row string) string {
	return `to_jsonb(jsonb_populate_record(` + row + `, '{"user_context": null}')) - 'user_context'`
}

// Names lists the stages for a sentence.
func (d templateData) Names() string {
	var names []string
	for _, s := range d.Stages {
		names = append(names, s.Name)
	}
	return strings.Join(names, ", ")
}

// Each lists a column of every stage, in lines of up to 85 bytes.
func (d templateData) Each(row, suffix string) string {
	var list, line string
	for i, s := range d.Stages {
		col := row + s.Name + suffix
		if i < len(d.Stages)-1 {
			col += ", "
		}
		if len(line)+len(col) > 85 {
			list, line = list+strings.TrimSuffix(line, " ")+"\n           ", ""
		}
		line += col
	}
	return list + line
}

// Any is the condition that at least one stage has the status.
func (d templateData) Any(row, status string) string {
	var parts []string
	for _, s := range d.Stages {
		parts = append(parts, fmt.Sprintf("%s%s_status = '%s'", row, s.Name, status))
	}
	return strings.Join(parts, "\n     or ")
}

// IsWorkedOn is the condition that a stage of the task is claimed, or divided.
func (d templateData) IsWorkedOn(row string) string {
	parts := []string{d.Any(row, "inprogress")}
	for _, s := range d.Stages {
		if s.Divides {
			parts = append(parts, row+s.Name+"_status = 'divided'")
		}
	}
	return strings.Join(parts, "\n     or ")
}

// HasWork is the condition that a stage of the task is worked on or will be: it is claimed or divided, or it is ready or
// waits only for a time.
func (d templateData) HasWork(row string) string {
	parts := []string{d.IsWorkedOn(row)}
	for _, s := range d.Stages {
		parts = append(parts, s.Unblocked(row))
	}
	return "(" + strings.Join(parts, "\n     or ") + ")"
}

// CancelledAt is ready_at of a task that is cancelled now: as it was where no stage is to be cancelled.
func (d templateData) CancelledAt() string {
	return "case when array[" + d.Each("", "_status") + "]\n" +
		"              && '{pending,inprogress,divided,failed}' then now() else ready_at end"
}

// NeverClaimed is the condition that no stage has attempts and none could be claimed yet.
// A released claim is not an attempt, but it leaves ready_at.
func (d templateData) NeverClaimed(row string) string {
	return "greatest(" + d.Each(row, "_attempts") + ") = 0\n        and " + row + "ready_at is null"
}

// Scheduled lists the times that the first stages of a task wait for before their
// first attempt.
func (d templateData) Scheduled() string {
	var times []string
	for _, s := range d.Stages {
		if len(s.Needs) == 0 {
			times = append(times, fmt.Sprintf("case when %[1]s_status = 'pending' and %[1]s_attempts = 0 and ready_at is null\n"+
				"         then %[1]s_run_at end", s.Name))
		}
	}
	return strings.Join(times, ", ")
}

// StillScheduled is the condition, in the function that retries the task t, that the
// task waits for its scheduled time, as before or again.
func (d templateData) StillScheduled() string {
	var parts []string
	for _, s := range d.Stages {
		if len(s.Needs) == 0 {
			parts = append(parts, fmt.Sprintf(`(case when %[1]s_retried
                          then from_stage is null and %[1]s_status = 'cancelled' and scheduled_at > now()
                          else %[1]s_status = 'pending' and %[1]s_attempts = 0
                               and %[1]s_run_at is not null and ready_at is null end)`, s.Name))
		}
	}
	return strings.Join(parts, "\n                     and ")
}

// StatusOf is the status of a task as a whole.
func (d templateData) StatusOf(row string) string {
	statuses := d.Each(row, "_status")
	var scheduled []string
	for _, s := range d.Stages {
		if len(s.Needs) == 0 {
			scheduled = append(scheduled, row+s.Name+"_run_at is not null")
		}
	}
	return strings.Join([]string{
		"(case when 'dead' in (" + statuses + ")", "     then 'dead'",
		"when 'cancelled' in (" + statuses + ")", "     then 'cancelled'",
		"when least(" + statuses + ") = 'completed'",
		" and greatest(" + statuses + ") = 'completed'", "     then 'completed'",
		"when 'inprogress' in (" + statuses + ")" + d.orDivided(statuses), "     then 'inprogress'",
		"when 'failed' in (" + statuses + ")", "     then 'failed'",
		"when 'completed' in (" + statuses + ")", "     then 'inprogress'",
		"when " + strings.Join(scheduled, " and "),
		" and " + d.NeverClaimed(row), "     then 'scheduled'",
		"else 'pending' end)",
	}, "\n       ")
}

// orDivided is the rest of the condition that some stage is being worked on.
func (d templateData) orDivided(statuses string) string {
	if !d.HasParts {
		return ""
	}
	return " or 'divided' in (" + statuses + ")"
}

// IsInStatusIndex is the condition of the index of statuses: the task is finished, a
// stage of it failed, or it waits for a time.
func (d templateData) IsInStatusIndex(row string) string {
	statuses := d.Each(row, "_status")
	return "(least(" + statuses + ") >= 'completed'\n    or greatest(" + statuses + ") >= 'failed'\n    or coalesce(" +
		d.Each(row, "_run_at") + ") is not null)"
}

// Values of the first column of the index of statuses: the task does not wait for a
// time; it waits and could not be claimed before; it waits and could be claimed before.
const (
	notWaiting     = 0
	waitsUnclaimed = 1
	waitsReclaimed = 2
)

// WaitKind is the first column of the index of statuses. It is short because
// PostgreSQL copies the text of an index for every statement that changes a task.
func (d templateData) WaitKind(row string) string {
	return "(case when coalesce(" + d.Each(row, "_run_at") + ") is null then 0\n        when " + d.NeverClaimed(row) +
		" then 1 else 2 end)"
}

// Furthest is the second column of the index of statuses: the last of the stages'
// statuses in the order of the enum.
func (d templateData) Furthest(row string) string { return "greatest(" + d.Each(row, "_status") + ")" }

// indexed returns conditions that the index of statuses serves, one per way to wait.
func (d templateData) indexed(row string, furthest Status, waits ...int) (conditions []string) {
	for _, n := range waits {
		conditions = append(conditions, fmt.Sprintf("%s = %d and %s = '%s' and %s",
			d.WaitKind(row), n, d.Furthest(row), furthest, d.IsInStatusIndex(row)))
	}
	return conditions
}

// IsScheduled is the condition that a task is [StatusScheduled]. An index serves it.
func (d templateData) IsScheduled(row string) string {
	return d.indexed(row, StatusPending, waitsUnclaimed)[0] + " and " + d.StatusOf(row) + " = 'scheduled'"
}

// Retrying returns conditions of which a task that is [StateRetrying] meets one. An
// index serves each.
func (d templateData) Retrying(row string) []string {
	return slices.Concat(
		d.indexed(row, StatusFailed, notWaiting, waitsUnclaimed, waitsReclaimed),
		d.indexed(row, StatusCompleted, waitsUnclaimed, waitsReclaimed),
		d.indexed(row, StatusInProgress, waitsUnclaimed, waitsReclaimed), d.indexed(row, StatusPending, waitsReclaimed),
		d.indexed(row, StatusDivided, d.waitsWhileDivided()...))
}

// waitsWhileDivided are the ways in which a task can wait while a stage of it is divided.
func (d templateData) waitsWhileDivided() []int {
	if !d.HasParts {
		return nil
	}
	return []int{waitsReclaimed}
}

// Alive is the condition that the worker is registered and not lost. The coalesce keeps PostgreSQL from reading
// all workers in the index of live ones: a plan that was made while there were few stays. The offset keeps
// PostgreSQL 18 from reading them all into a hash table: there enable_seqscan no longer prevents that.
func (d templateData) Alive(worker string) string {
	return "exists (select from workers\n                    where id = " + worker + " and coalesce(stopped_at, lost_at) is null offset 0)"
}

// Connected is the condition that the session of a row of workers is open. It is false for
// the key 0, with which engine.DisconnectWorker marks a worker: any role can take that lock.
func (d templateData) Connected(row string) string {
	return `exists (
            select from pg_locks l
             where ` + row + `session <> 0 and l.locktype = 'advisory' and l.objsubid = 1 and l.granted
               and l.database = (select oid from pg_database where datname = current_database())
               and (l.classid::bigint << 32 | l.objid::bigint) = ` + row + `session)`
}

// DisconnectGrace is [DisconnectGrace] of a row of workers.
func (d templateData) DisconnectGrace(row string) string {
	return "greatest(least(" + row + "lease / 5, interval '7 s'), " + row + "lease / 17)"
}

// TransactionLimits sets the limits of a worker's transaction, as expressions of a
// select: it does not wait long for locks, PostgreSQL 17 and later end it after 30 s,
// and its application_name names the worker, so that the sweep can end transactions
// that a stopped process left open.
func (d templateData) TransactionLimits(lockWait, worker string) string {
	return "set_config('lock_timeout', " + lockWait + ", true),\n" +
		"          set_config('application_name', coalesce('cuelight ' || " + worker +
		", current_setting('application_name')), true),\n" +
		"          case when current_setting('server_version_num')::integer >= 170000\n" +
		"               then set_config('transaction_timeout', '30s', true) end"
}

// StagesIn returns the stages of a set, which is given as bits.
func (d templateData) StagesIn(set int) (stages []stageData) {
	for _, s := range d.Stages {
		if s.Bit&set != 0 {
			stages = append(stages, s)
		}
	}
	return stages
}

// AnyContinues is the condition, on a row of the completing statement, that the task
// goes on to a stage of the set.
func (d templateData) AnyContinues(set int) string {
	var parts []string
	for _, s := range d.StagesIn(set) {
		parts = append(parts, s.Name+"_continues")
	}
	return strings.Join(append(parts, "false"), "\n                or ")
}

// AnyNeedDone is the condition, on such a row, that the task has just completed a stage of the set that
// this stage needs.
func (s stageData) AnyNeedDone(set int) string {
	var parts []string
	for i, name := range s.Needs {
		if set&(1<<s.needs[i]) != 0 {
			parts = append(parts, name+"_done")
		}
	}
	return strings.Join(parts, " or ")
}

// NeedsText names the stages that a stage needs, with a verb.
func (s stageData) NeedsText() string {
	verb := " is"
	if len(s.Needs) > 1 {
		verb = " are"
	}
	return strings.Join(s.Needs, " and ") + verb
}

// NeedsCompleted is the condition that all stages it needs are completed.
func (s stageData) NeedsCompleted(row string) string {
	var parts []string
	for _, n := range s.Needs {
		parts = append(parts, row+n+"_status = 'completed'")
	}
	return strings.Join(parts, "\n    and ")
}

// Unblocked is the condition that a stage is ready or waits only for a time.
func (s stageData) Unblocked(row string) string {
	open := row + s.Name + "_status in ('pending', 'failed')"
	if len(s.Needs) > 0 {
		open += "\n    and " + s.NeedsCompleted(row)
	}
	return open
}

// Ready is the condition that a stage can be claimed.
func (s stageData) Ready(row string) string {
	return s.Unblocked(row) + "\n    and " + row + s.Name + "_run_at is null"
}

// DividedInto is how many parts the stage of a row was divided into; 0 if it is not divided.
func (s stageData) DividedInto(row string) string {
	if !s.Divides {
		return "0"
	}
	return fmt.Sprintf("case when %[1]s%[2]s_open_parts is null then 0 else %[1]s%[2]s_parts end", row, s.Name)
}

// PartOpen is the condition that a row is a part of the stage that is ready or waits for a time.
func (s stageData) PartOpen(row string) string {
	return row + "stage = '" + s.Name + "' and " + row + "status in ('pending', 'failed')"
}

// PartReady is the condition that a row is a part of the stage that can be claimed.
func (s stageData) PartReady(row string) string {
	return s.PartOpen(row) + "\n    and " + row + "run_at is null"
}

// MayClaimPart is MayClaim for a row of parts.
func (s stageData) MayClaimPart(row, worker string) string {
	return fmt.Sprintf("(%splacement is null\n                 or coalesce(%s <= 0, false))", row, s.PartPlacementWait(row, worker))
}

// PartPlacementWait is PlacementWait for a row of parts.
func (s stageData) PartPlacementWait(row, worker string) string {
	return fmt.Sprintf("%[1]s(%[2]stask_id, %[2]splacement, '%[3]s', %[4]s, %[2]sready_at)", s.placementWait, row, s.Name, worker)
}

// userOf is the user of a row, by whom claims take turns; empty for none.
func userOf(row string) string { return "coalesce(" + row + "user_id, '')" }

// NextUser is an expression for the user after another one whose tasks of the priority in top are ready: the first one
// after the last. filter is a further condition.
func (s stageData) NextUser(after, filter string) string {
	user, ready := userOf("t."), strings.ReplaceAll(s.Ready("t."), "\n", "\n             ")
	next := func(condition string) string {
		return fmt.Sprintf(`(select %[1]s from %[2]s t
               where %[3]s
                 and t.priority = (select priority from top)%[4]s%[5]s
               order by %[1]s, t.id limit 1)`, user, s.Tasks, ready, filter, condition)
	}
	return "coalesce(\n             " + next("\n                 and "+user+" > "+after) + ",\n             " + next("") + ")"
}

// MayClaim is the condition that a worker may claim the ready stage of a row: it has what the
// task requires, and the time has passed for which it leaves the task to workers that are
// preferred. Most tasks have no placement, and cost nothing more. since is an expression for
// when the stage became ready; null: the database knows.
func (s stageData) MayClaim(row, worker, since string) string {
	return fmt.Sprintf("(%splacement is null\n                 or coalesce(%s <= 0, false))", row, s.PlacementWait(row, worker, since))
}

// PlacementWait calls the function placement_wait for a row. Where a stage divides, the placement is for its
// parts: any worker may divide and join, since remote workers do neither.
func (s stageData) PlacementWait(row, worker, since string) string {
	stage := s.Name
	if s.Divides {
		stage = "" // which has no placement
	}
	return fmt.Sprintf("%[1]s(%[2]sid, %[2]splacement, '%[3]s', %[4]s, %[5]s)", s.placementWait, row, stage, worker, since)
}

// IsPlaced is the condition of the index of tasks with a placement that some stage may wait for.
func (d templateData) IsPlaced(row string) string {
	var open []string
	for _, s := range d.Stages {
		open = append(open, row+s.Name+"_status in ('pending', 'failed')")
	}
	return row + "placement is not null\n    and (" + strings.Join(open, "\n      or ") + ")"
}

// ReadyInputs lists a stage and those that it needs, as SQL strings: their attempts say since when
// it is ready.
func (s stageData) ReadyInputs() string {
	return "'" + strings.Join(append([]string{s.Name}, s.Needs...), "', '") + "'"
}

// Waited is how long the task t has been ready: since it was submitted, became due or
// was retried, or since the last attempt at the stage, or at one it needs, ended or
// allowed the next.
func (s stageData) Waited(attempts string) string {
	return fmt.Sprintf(`now() - greatest(t.created_at, t.ready_at,
              (select max(coalesce(retry_at, finished_at)) from %s a
                where a.task_id = t.id and a.stage in (%s)))`, attempts, s.ReadyInputs())
}

// UpstreamList lists the stage and all it needs as SQL strings.
func (s stageData) UpstreamList() string { return "'" + strings.Join(s.Upstream, "', '") + "'" }
