package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

const (
	redrawEvery = 125 * time.Millisecond // on a terminal
	lineEvery   = 10 * time.Second       // otherwise, per running stage
)

// progress tells a person how the work goes: on a terminal with a block of lines
// that is redrawn in place, otherwise with a line for what happens and one now
// and then for what goes on.
type progress struct {
	to    *stream
	quiet bool // only what went wrong
	label func(store.ID) string

	block  *block // nil where there is no terminal
	footer string // the block's last line, if any
	told   map[work]time.Time
}

func newProgress(to *stream, quiet bool, label func(store.ID) string) *progress {
	s := &progress{to: to, quiet: quiet, label: label, told: make(map[work]time.Time)}
	if to.terminal && !quiet {
		s.block = &block{to: to}
	}
	return s
}

// say prints a line for good.
func (p *progress) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if p.block != nil {
		p.block.print(text)
		return
	}
	fmt.Fprintln(p.to, text)
}

// event tells what happened, if that is worth a line.
func (p *progress) event(e stages.Event) {
	label := ""
	if !e.Task.IsZero() {
		label = p.label(e.Task)
	}
	again := ""
	if e.Attempt > 1 {
		again = fmt.Sprintf(" (attempt %d)", e.Attempt)
	}
	switch e.Kind {
	case stages.StageStarted:
		p.told[work{e.Task, e.Stage}] = time.Now()
		p.detail("%s: %s started%s", label, e.Stage, again)
	case stages.StageCompleted:
		p.detail("%s: %s completed in %s", label, e.Stage, span(e.Duration))
	case stages.AttemptFailed:
		p.say("%s: %s %s, next try in %s: %s", label, e.Stage, p.to.paint(yellow, "failed"), span(e.RetryIn), errorLine(e.Err))
	case stages.StageDead:
		p.say("%s: %s %s: %s", label, e.Stage, p.to.paint(red, "failed"), errorLine(e.Err))
	case stages.ClaimReleased:
		p.detail("%s: %s given back", label, e.Stage)
	case stages.ClaimRevoked:
		p.say("%s: %s stopped: the task was cancelled, or given to somebody else", label, e.Stage)
	case stages.StageSuspended:
		p.say("%s waits, and is tried again now and then: %s", e.Stage, errorLine(e.Err))
	case stages.DatabaseLost:
		p.say("the database %s; waiting for it", dbconn.Unavailability(e.Err))
	case stages.DatabaseBack:
		p.say("the database is back")
	case stages.WorkerDraining:
		if e.Count > 0 {
			p.say("waiting for %s; again to stop at once", plural(e.Count, "running stage"))
		}
	}
}

// detail is for those who have no block to look at.
func (p *progress) detail(format string, args ...any) {
	if p.block == nil && !p.quiet {
		p.say(format, args...)
	}
}

func errorLine(err error) string {
	if err == nil {
		return "no reason is known"
	}
	return usererr.FirstLine(err.Error())
}

// goingOn shows what is being worked on.
func (p *progress) goingOn(all []activity) {
	slices.SortFunc(all, func(a, b activity) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.stage, b.stage))
	})
	switch {
	case p.block != nil:
		var running []row
		for _, a := range all {
			running = append(running, p.row(a))
		}
		width, _ := p.to.size()
		lines := p.to.rows(running, width)
		if p.footer != "" {
			lines = append(lines, p.footer)
		}
		p.block.draw(lines)
	case !p.quiet:
		for _, a := range all {
			if time.Since(p.told[a.work]) >= lineEvery {
				p.told[a.work] = time.Now()
				r := p.row(a)
				p.say("%s: %s %s", r.label, r.stage, r.words())
			}
		}
	}
}

func (p *progress) row(a activity) row {
	return row{
		label: p.label(a.task), stage: a.stage, percent: a.progress.Percent, speed: a.progress.Speed,
		left: a.progress.ETA, note: a.progress.Note, since: time.Since(a.since),
	}
}

// aside makes room for something that is not this show's to print.
func (p *progress) aside() {
	if p.block != nil {
		p.block.clear()
	}
}
