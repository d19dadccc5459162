package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

const (
	redrawInterval = 125 * time.Millisecond // on a terminal
	lineInterval   = 10 * time.Second       // otherwise, for each running stage
)

// progress shows running stages: on a terminal as lines that are redrawn in place,
// otherwise as a line for each event and, from time to time, for each running stage.
type progress struct {
	to    *console.Stream
	quiet bool // print failures only
	label func(store.ID) string

	screen  *console.Screen // nil without a terminal
	footer  string          // the screen's last line, if any
	printed map[daemon.StageKey]time.Time
}

func newProgress(to *console.Stream, quiet bool, label func(store.ID) string) *progress {
	p := &progress{to: to, quiet: quiet, label: label, printed: make(map[daemon.StageKey]time.Time)}
	if to.IsTerminal && !quiet {
		p.screen = &console.Screen{Out: to}
	}
	return p
}

// printf prints a line above the running stages.
func (p *progress) printf(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.screen != nil {
		p.screen.Print(text)
		return
	}
	fmt.Fprintln(p.to, text)
}

// detail prints a line where the running stages are not drawn.
func (p *progress) detail(format string, args ...any) {
	if p.screen == nil && !p.quiet {
		p.printf(format, args...)
	}
}

// event prints an event that is worth a line.
func (p *progress) event(e stages.Event) {
	label, stage := "", stageText(e.Stage, e.Part, e.Parts)
	if !e.Task.IsZero() {
		label = p.label(e.Task)
	}
	switch e.Kind {
	case stages.StageStarted:
		p.printed[daemon.StageKey{Task: e.Task, Stage: e.Stage, Part: e.Part}] = time.Now()
		p.printStart(label, stage, e)
	case stages.StageDivided:
		if e.Count == 1 && e.Err == nil {
			return
		}
		why := ""
		if e.Err != nil {
			why = e.Err.Error()
		}
		p.detail("%s: %s divided %s", label, stage, partsText(e.Count, e.Kept, why))
	case stages.StageCompleted, stages.PartCompleted:
		if e.Part == 0 && e.Parts == 1 {
			return // the join of the only part, which was shown as the stage
		}
		p.detail("%s: %s completed in %s", label, stage, console.Duration(e.Duration))
	case stages.AttemptFailed:
		p.printf("%s: %s %s, retry in %s: %s", label, stage, p.to.Paint(console.Yellow, "failed"),
			console.Duration(e.RetryIn), errorLine(e.Err))
	case stages.StageDead:
		p.printf("%s: %s %s: %s", label, stage, p.to.Paint(console.Red, "failed"), errorLine(e.Err))
	case stages.ClaimReleased:
		p.detail("%s: %s released", label, stage)
	case stages.ClaimRevoked:
		p.printf("%s: %s stopped: the task was cancelled, or another worker has it", label, stage)
	case stages.StageSuspended:
		p.printf("%s is suspended and retried from time to time: %s", e.Stage, errorLine(e.Err))
	case stages.DatabaseUnavailable:
		p.printf("the database %s; waiting for it", dbconn.DescribeUnavailable(e.Err))
	case stages.DatabaseAvailable:
		p.printf("the database is back")
	case stages.WorkerDraining:
		if e.Count > 0 {
			p.printf("waiting for %s; a second signal stops at once", console.Plural(e.Count, "running stage"))
		}
	}
}

// printStart prints that an attempt has started. The only part of a stage is shown as the stage, whose division has printed
// the line already.
func (p *progress) printStart(label, stage string, e stages.Event) {
	attempt := ""
	if e.Attempt > 1 {
		attempt = fmt.Sprintf(" (attempt %d)", e.Attempt)
	}
	switch {
	case e.Parts == 1 && e.Attempt <= 1:
	case e.Part == 0 && e.Parts > 0:
		p.detail("%s: %s joins its %s%s", label, stage, console.Plural(e.Parts, "part"), attempt)
	default:
		p.detail("%s: %s started%s", label, stage, attempt)
	}
}

// stageText names a stage, or a part of one that has several; parts is 0 if that is not known.
func stageText(stage string, part, parts int) string {
	switch {
	case part == 0, parts == 1:
		return stage
	case parts > 0:
		return fmt.Sprintf("%s part %d of %d", stage, part, parts)
	}
	return fmt.Sprintf("%s part %d", stage, part)
}

func errorLine(err error) string {
	if err == nil {
		return "unknown error"
	}
	return usererr.FirstLine(err.Error())
}

// showRunning shows the running stages. A stage of several parts, which are in divided, has one line; a part that is the
// only one is shown as the stage.
func (p *progress) showRunning(all []daemon.Activity, divided []report.PartsProgress) {
	divided = slices.DeleteFunc(slices.Clone(divided), func(d report.PartsProgress) bool {
		return d.Parts == 1 || d.Completed == d.Parts || d.Dead > 0
	})
	all = slices.DeleteFunc(all, func(a daemon.Activity) bool {
		_, isPart := report.FindParts(divided, a.Task, a.Stage)
		return isPart && a.Part > 0
	})
	for _, d := range divided {
		all = append(all, daemon.Activity{Running: d.Activity()})
	}
	slices.SortFunc(all, func(a, b daemon.Activity) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Stage, b.Stage), bytes.Compare(a.Task[:], b.Task[:]),
			cmp.Compare(a.Part, b.Part))
	})
	switch {
	case p.screen != nil:
		var running []console.ProgressRow
		for _, a := range all {
			running = append(running, p.row(a, divided))
		}
		width, _ := p.to.Size()
		lines := p.to.Rows(running, width)
		if p.footer != "" {
			lines = append(lines, p.footer)
		}
		p.screen.Draw(lines)
	case !p.quiet:
		for _, a := range all {
			key := daemon.StageKey{Task: a.Task, Stage: a.Stage, Part: a.Part}
			if time.Since(p.printed[key]) >= lineInterval {
				p.printed[key] = time.Now()
				r := p.row(a, divided)
				p.printf("%s: %s %s", r.Label, r.Stage, r)
			}
		}
	}
}

func (p *progress) row(a daemon.Activity, divided []report.PartsProgress) console.ProgressRow {
	r := progressRow(a.Running, p.label(a.Task))
	if d, ok := report.FindParts(divided, a.Task, a.Stage); ok && a.Part == 0 {
		r = partsRow(d, r.Label)
	}
	if !a.Since.IsZero() {
		r.Elapsed = time.Since(a.Since)
	}
	return r
}

// partsRow shows a divided stage.
func partsRow(p report.PartsProgress, label string) console.ProgressRow {
	r := progressRow(p.Activity(), label)
	r.Counts, r.Others = p.Counts(), p.Others()
	return r
}

func progressRow(r store.Running, label string) console.ProgressRow {
	return console.ProgressRow{
		Label: label, Stage: stageText(r.Stage, r.Part, r.Parts),
		Percent: r.Percent, Speed: r.Speed, Remaining: seconds(r.ETA), Note: r.Activity(),
	}
}

// clear removes the running stages from the terminal, for other output.
func (p *progress) clear() {
	if p.screen != nil {
		p.screen.Clear()
	}
}
