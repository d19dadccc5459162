package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// maxShownParts is how many parts of a stage are listed unless all are asked for.
const maxShownParts = 20

// addParts adds the parts of a stage: all of them, or those that are running, retried or dead.
func addParts(t *console.Table, d shownTask, s store.StageState, all bool) {
	listed := slices.DeleteFunc(slices.Clone(d.Parts), func(p store.PartState) bool {
		isOpen := p.Status == store.StatusInProgress || p.Status == store.StatusFailed || p.Status == store.StatusDead
		return p.Stage != s.Name || !all && !isOpen
	})
	for i, p := range listed {
		if i == maxShownParts && !all {
			t.Add(fmt.Sprintf("  %d more", len(listed)-i), "", "", "--parts lists all")
			return
		}
		t.Add("  part "+fmt.Sprint(p.Part), string(p.Status), fmt.Sprint(p.Attempts), partText(d, p))
	}
}

// partText says what happens to a part: its progress and worker, or when and why it is retried.
func partText(d shownTask, p store.PartState) (text string) {
	switch p.Status {
	case store.StatusInProgress:
		for _, r := range d.Running {
			if r.Stage == p.Stage && r.Part == p.Part {
				text = progressRow(r, "").String() + " "
			}
		}
		for _, w := range d.Workers {
			if w.ID == p.LockedBy {
				return text + "on " + usererr.Printable(w.Name)
			}
		}
	case store.StatusFailed, store.StatusDead:
		if p.RunAt != nil {
			text = "retry in " + console.Duration(time.Until(*p.RunAt)) + ": "
		}
		for _, a := range slices.Backward(d.History) {
			if a.Stage == p.Stage && a.Part == p.Part && a.Error != "" {
				return text + usererr.FirstLine(a.Error)
			}
		}
	}
	return text
}

// foldedAttempts returns what is written in the place of attempts: by the first completed attempt at the parts of a
// stage that was divided into several, how many there are, and nothing for the others.
func foldedAttempts(history []store.Attempt, all bool) map[int]string {
	folded := make(map[int]string)
	if all {
		return folded
	}
	for stage, completed := range report.CompletedParts(history) {
		var first, last store.Attempt
		for n, i := range completed {
			if last = history[i]; n == 0 {
				first = last
			}
			folded[i] = ""
		}
		folded[completed[0]] = fmt.Sprintf("%s  %s, %s completed in %s; --parts lists them\n",
			first.StartedAt.Local().Format(time.DateTime), stage, console.Plural(len(completed), "part"),
			console.Duration(last.FinishedAt.Sub(first.StartedAt)))
	}
	return folded
}
