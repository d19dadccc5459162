package main

import (
	"context"
	"unicode/utf8"

	"github.com/cuelight/cuelight/store"
)

// publishStage is the name of the last stage of the built-in pipeline.
const publishStage = "publish"

// report is what became of a task: what `run --json` and `submit --wait
// --json` write, one line per task.
type taskReport struct {
	TaskID    store.ID             `json:"task_id"`
	Source    string               `json:"source"` // as it was given; see writable
	Status    store.Status         `json:"status"`
	Published *string              `json:"published"` // path of master.m3u8
	Error     *string              `json:"error"`     // of the stage that died
	Stages    ordered[stageReport] `json:"stages"`
}

// stageReport is one stage in a report.
type stageReport struct {
	Status     store.Status `json:"status"`
	Attempts   int          `json:"attempts"`
	DurationMS int64        `json:"duration_ms"` // of all its attempts together
	Error      *string      `json:"error"`       // of the last one, unless the stage is completed
}

// reportOn reads what became of a task. publishDir is where this process
// publishes; another one that published the task may have another.
func reportOn(ctx context.Context, st *store.Store, t store.Task, source, publishDir string) (taskReport, error) {
	r := taskReport{TaskID: t.ID, Source: writable(source, t.Source), Status: t.Status}
	history, err := st.History(ctx, t.ID)
	if err != nil {
		return r, err
	}
	for _, s := range t.Stages {
		sr := summarize(s, history)
		if s.Status == store.StatusDead && r.Error == nil {
			r.Error = sr.Error
		}
		r.Stages = append(r.Stages, member[stageReport]{s.Name, sr})
	}
	if t.Status == store.StatusCompleted {
		if r.Published, err = masterPath(ctx, st, t.ID, publishDir); err != nil {
			return r, err
		}
	}
	return r, nil
}

// writable is a source as it was given, or where that is not UTF-8, of which JSON
// would lose a part, as it is stored.
func writable(given, stored string) string {
	if utf8.ValidString(given) {
		return given
	}
	return stored
}

func summarize(s store.StageState, history []store.Attempt) stageReport {
	sr := stageReport{Status: s.Status, Attempts: s.Attempts}
	for i := range history {
		a := &history[i]
		if a.Stage != s.Name {
			continue
		}
		sr.DurationMS += a.FinishedAt.Sub(a.StartedAt).Milliseconds()
		if a.Error != "" {
			sr.Error = &a.Error
		}
	}
	if s.Status == store.StatusCompleted {
		sr.Error = nil
	}
	return sr
}
