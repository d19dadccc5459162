package report

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// TaskDetails is a task with its attempts.
type TaskDetails struct {
	store.Task
	Running  []store.Running `json:"running"`
	History  []store.Attempt `json:"history"`
	Warnings []string        `json:"warnings"` // of the stages, and of what none of the workers offers
}

// Task reads a task with its attempts. It returns [store.ErrNotFound].
func Task(ctx context.Context, st *store.Store, id store.ID) (d TaskDetails, err error) {
	if d.Task, err = st.Get(ctx, id); err != nil {
		return d, err
	}
	history, err := st.History(ctx, id)
	if err != nil {
		return d, err
	}
	d.History, d.Warnings = append([]store.Attempt{}, history...), store.Warnings(history)
	workers, err := st.Workers(ctx, false)
	d.Running = runningStages(d.Task, workers)
	d.Warnings = append(d.Warnings, PlacementWarnings(d.Task, workers)...)
	return d, err
}

// Placements says, for each stage of a task with a placement, which workers may do it.
func Placements(t store.Task) (texts []string) {
	byStage := t.Placements()
	for _, stage := range slices.Sorted(maps.Keys(byStage)) {
		texts = append(texts, stage+" "+byStage[stage].String())
	}
	return texts
}

// PlacementWarnings lists the stages that are to be claimed and require what none of the workers offers.
func PlacementWarnings(t store.Task, workers []store.Worker) (warnings []string) {
	byStage := t.Placements()
	for _, s := range t.Stages {
		required := byStage[s.Name].Requires
		isOpen := s.Status == store.StatusPending || s.Status == store.StatusFailed
		if isOpen && !slices.ContainsFunc(workers, func(w store.Worker) bool { return len(w.Lacks(required)) == 0 }) && len(required) > 0 {
			warnings = append(warnings, fmt.Sprintf("%s waits: it requires %s, and no running worker offers that",
				s.Name, strings.Join(required, " and ")))
		}
	}
	return warnings
}

// runningStages returns what workers report of the stages that they run now. A report may
// be older than the task, so only stages with a current claim count.
func runningStages(t store.Task, workers []store.Worker) []store.Running {
	running := []store.Running{}
	for _, w := range workers {
		for _, r := range w.Running {
			if slices.ContainsFunc(t.Stages, func(s store.StageState) bool { return !r.Token.IsZero() && s.Token == r.Token }) {
				running = append(running, r)
			}
		}
	}
	return running
}
