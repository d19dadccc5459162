package report

import (
	"context"
	"maps"
	"slices"

	"github.com/cuelight/cuelight/store"
)

// TaskDetails is a task with its attempts.
type TaskDetails struct {
	store.Task
	Running []store.Running `json:"running"`
	// Progress is that of divided stages, and Parts are their parts.
	Progress []PartsProgress   `json:"progress,omitempty"`
	Parts    []store.PartState `json:"parts,omitempty"`
	History  []store.Attempt   `json:"history"`
	Warnings []string          `json:"warnings"` // of the stages, and of what none of the workers offers
	Workers  []store.Worker    `json:"-"`        // that work now
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
	d.History, d.Warnings = append([]store.Attempt{}, history...), Warnings(history)
	if d.Parts, err = st.Parts(ctx, id); err != nil {
		return d, err
	}
	if d.Workers, err = st.Workers(ctx, false); err != nil {
		return d, err
	}
	d.Running = d.runningAttempts(d.Workers)
	d.Warnings = append(d.Warnings, PlacementWarnings(d.Task, d.Workers)...)
	d.Progress, err = New(st.DB(), st.Graph()).PartsProgress(ctx, []store.Task{d.Task}, ListedWorkers(d.Workers))
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

// runningAttempts returns what workers report of the attempts that they run now. A report may
// be older than the task, so only current claims count.
func (d *TaskDetails) runningAttempts(workers []store.Worker) []store.Running {
	claims := make(map[store.ID]bool)
	for _, s := range d.Stages {
		claims[s.Token] = true
	}
	for _, p := range d.Parts {
		claims[p.Token] = true
	}
	delete(claims, store.ID{})
	running := []store.Running{}
	for _, w := range workers {
		for _, r := range w.Running {
			if claims[r.Token] {
				running = append(running, r)
			}
		}
	}
	return running
}
