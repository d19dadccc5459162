package main

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// taskReport is the outcome of a task, as `run --json` and `submit --wait --json` write it.
type taskReport struct {
	TaskID    store.ID             `json:"task_id"`
	Source    string               `json:"source"` // see validSource
	Status    store.Status         `json:"status"`
	Published *string              `json:"published"` // path of master.m3u8
	Error     *string              `json:"error"`     // of the dead stage
	Warnings  []string             `json:"warnings"`  // of its stages
	Stages    ordered[stageReport] `json:"stages"`
}

// stageReport is one stage in a report.
type stageReport struct {
	Status     store.Status `json:"status"`
	Attempts   int          `json:"attempts"`
	DurationMS int64        `json:"duration_ms"` // of all attempts together
	Error      *string      `json:"error"`       // of the last attempt, unless the stage is completed
}

// reportOn reads the outcome of a task.
func (c *cli) reportOn(ctx context.Context, st *store.Store, t store.Task, source string) (taskReport, error) {
	history, err := st.History(ctx, t.ID)
	if err != nil {
		return taskReport{}, err
	}
	return c.newReport(ctx, st, t, history, source)
}

// newReport returns a report from a task's history. Where the process that published the
// task has not recorded its directory, that of this process counts.
func (c *cli) newReport(
	ctx context.Context, st *store.Store, t store.Task, history []store.Attempt, source string,
) (taskReport, error) {
	r := taskReport{
		TaskID: t.ID, Source: validSource(source, t.Source), Status: t.Status, Warnings: report.Warnings(history),
	}
	for _, s := range t.Stages {
		sr := reportOnStage(s, history)
		if s.Status == store.StatusDead && r.Error == nil {
			r.Error = sr.Error
		}
		r.Stages = append(r.Stages, member[stageReport]{s.Name, sr})
	}
	if t.Status != store.StatusCompleted {
		return r, nil
	}
	var err error
	r.Published, err = c.masterPlaylist(ctx, st, t.ID)
	return r, err
}

// masterPlaylist returns the path of the published master playlist of a task; nil if there is none.
func (c *cli) masterPlaylist(ctx context.Context, st *store.Store, task store.ID) (*string, error) {
	published, err := c.PublishPath()
	if err != nil {
		return nil, err
	}
	return daemon.MasterPlaylist(ctx, st, task, published)
}

// validSource returns a source as it was given; as it is stored if JSON would lose bytes
// that are not UTF-8.
func validSource(given, stored string) string {
	if utf8.ValidString(given) {
		return given
	}
	return stored
}

func reportOnStage(s store.StageState, history []store.Attempt) stageReport {
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

// printReport prints the published path of a task, or why there is none.
func (c *cli) printReport(r taskReport) error {
	if c.json {
		return c.writeJSON(r)
	}
	if r.Published != nil {
		_, err := fmt.Fprintln(c.out, *r.Published)
		return err
	}
	reason := string(r.Status)
	if r.Error != nil {
		reason = usererr.FirstLine(*r.Error)
	}
	_, err := fmt.Fprintf(c.err, "%s: %s\n", labelOf(r.Source), reason)
	return err
}

// exitStatusFor returns the exit status for so many completed tasks of all.
func exitStatusFor(completed, all int) error {
	switch completed {
	case all:
		return nil
	case 0:
		return exitStatus(exitFailure)
	}
	return exitStatus(exitPartial)
}
