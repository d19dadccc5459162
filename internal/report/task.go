package report

import (
	"context"

	"github.com/cuelight/cuelight/store"
)

// TaskDetails is a task with its attempts.
type TaskDetails struct {
	store.Task
	Running  []store.Running `json:"running"`
	History  []store.Attempt `json:"history"`
	Warnings []string        `json:"warnings"` // of the stages
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
	d.Running, err = runningStages(ctx, st, d.Task)
	return d, err
}

// runningStages returns what workers report of the stages that they run now. A report may
// be older than the task, so only stages with a current claim count.
func runningStages(ctx context.Context, st *store.Store, t store.Task) ([]store.Running, error) {
	running := []store.Running{}
	claimed := make(map[store.ID]bool)
	for _, s := range t.Stages {
		if !s.Token.IsZero() {
			claimed[s.Token] = true
		}
	}
	if len(claimed) == 0 {
		return running, nil
	}
	workers, err := st.Workers(ctx, false)
	for _, w := range workers {
		for _, r := range w.Running {
			if claimed[r.Token] {
				running = append(running, r)
			}
		}
	}
	return running, err
}
