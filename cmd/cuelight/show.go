package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) showCommand() *cobra.Command {
	parts, viewers := false, (*viewerFlags)(nil)
	cmd := &cobra.Command{
		Use:   "show ID...",
		Short: "Show a task's stages, attempts, errors and progress",
		Long: `Show shows the stages of tasks, every attempt with its error, and the progress of
running attempts. The end of an id, four digits or more, selects the task if no other
task's id ends like that.

Of a stage in several parts it lists the parts that are running, waiting to be retried
or dead, and the attempts that were not completed; with --parts all of them.`,
		Args: atLeastOne("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withExistingDatabase(cmd.Context(), func(db *dbconn.Database) error {
				return c.eachTask(cmd.Context(), db.Store, args, func(id store.ID) error {
					return c.show(cmd.Context(), db, id, parts, *viewers)
				})
			})
		},
	}
	viewers = addViewerFlags(cmd.Flags())
	cmd.Flags().BoolVar(&parts, "parts", false, "list all parts, and all attempts at them")
	c.jsonFlag(cmd)
	return cmd
}

// shownTask is what show prints of a task.
type shownTask struct {
	report.TaskDetails
	Published *string         `json:"published"`
	Playback  *playback.Video `json:"playback,omitempty"`
	Error     *string         `json:"error"`
}

func (c *cli) show(ctx context.Context, db *dbconn.Database, id store.ID, parts bool, viewers viewerFlags) error {
	details, err := report.Task(ctx, db.Store, id)
	if err != nil {
		return err
	}
	r, err := c.newReport(ctx, db.Store, details.Task, details.History, details.Source)
	if err != nil {
		return err
	}
	d := shownTask{TaskDetails: details, Published: r.Published, Error: r.Error}
	d.Playback, err = c.playbackOf(ctx, db.Store, details.Task, viewers, 0)
	if e, ok := errors.AsType[*usererr.Error](err); err != nil && (!ok || e.Kind != usererr.NotFound) { // otherwise: no keys on this host
		return err
	}
	if c.json {
		return c.writeJSON(d)
	}
	// Before the task is completed, the version that was published early or before a retry can be played.
	if d.Published == nil {
		if d.Published, err = c.masterPlaylist(ctx, db.Store, id); err != nil {
			return err
		}
	}
	var b strings.Builder
	c.writeHead(&b, d)
	b.WriteString("\n")
	if _, err := fmt.Fprint(c.out, b.String()); err != nil {
		return err
	}
	if err := c.stageTable(d, parts).Write(); err != nil {
		return err
	}
	return c.writeHistory(d, parts)
}

// writeHead writes what concerns the task as a whole.
func (c *cli) writeHead(b *strings.Builder, d shownTask) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "%-10s %s\n", name, value)
		}
	}
	line("task", d.ID.String())
	if title := d.Title(); title != "" {
		line("title", usererr.Printable(title))
	}
	line("source", shownSource(d.Source))
	line("status", c.out.Paint(statusColours[string(d.Status)], string(d.Status)))
	line("submitted", d.CreatedAt.Local().Format(time.DateTime)+" ("+console.Duration(time.Since(d.CreatedAt))+" ago)")
	if d.Priority != 0 {
		line("priority", fmt.Sprint(d.Priority))
	}
	line("user", usererr.Printable(d.UserID))
	line("request id", usererr.Printable(d.RequestID))
	if string(d.Params) != "{}" {
		line("params", usererr.Printable(string(d.Params)))
	}
	var userContext bytes.Buffer
	if json.Compact(&userContext, d.UserContext) == nil {
		line("context", usererr.Printable(userContext.String()))
	}
	for _, text := range report.Placements(d.Task) {
		line("placement", usererr.Printable(text))
	}
	if !d.OverriddenBy.IsZero() {
		line("replaced by", d.OverriddenBy.String())
	}
	if d.Published != nil {
		note := ""
		switch d.Status {
		case store.StatusCompleted:
		case store.StatusDead, store.StatusCancelled:
			note = " (the new version was not published)"
		default:
			note = " (a new version is in progress)"
		}
		line("published", usererr.Printable(*d.Published)+note)
	}
	if d.Playback != nil && strings.Contains(d.Playback.Embed, "://") {
		line("watch", d.Playback.Embed)
	}
	for _, w := range d.Warnings {
		line("warning", usererr.Printable(w))
	}
	if d.Error != nil {
		line("error", usererr.FirstLine(*d.Error))
	}
}

func (c *cli) stageTable(d shownTask, parts bool) *console.Table {
	t := &console.Table{Out: c.out, Header: []string{"STAGE", "STATUS", "ATTEMPTS", "NOW"}}
	for _, s := range d.Stages {
		now := ""
		for _, r := range d.Running {
			if r.Stage == s.Name && r.Part == 0 {
				now = progressRow(r, "").String()
			}
		}
		if p, ok := report.FindParts(d.Progress, d.ID, s.Name); ok {
			now = partsRow(p, "").String()
		}
		if s.RunAt != nil {
			now = "not before " + s.RunAt.Local().Format(time.DateTime)
		}
		t.Add(s.Name, string(s.Status), fmt.Sprint(s.Attempts), now)
		addParts(t, d, s, parts)
	}
	t.Paint(1, statusColours)
	return t
}

// writeHistory writes a line for each attempt, and its whole error below it. Without parts, completed attempts at the
// parts of a stage that has several are only counted.
func (c *cli) writeHistory(d shownTask, parts bool) error {
	if len(d.History) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("\n")
	folded := foldedAttempts(d.History, parts)
	for i, a := range d.History {
		if n, ok := folded[i]; ok {
			b.WriteString(n)
			continue
		}
		encoder, undivided := transcodeTexts(a.Result)
		fmt.Fprintf(&b, "%s  %s, attempt %d: %s%s after %s on %s\n", a.StartedAt.Local().Format(time.DateTime),
			stageText(a.Stage, a.Part, 0), a.Attempt, a.Outcome, encoder, console.Duration(a.FinishedAt.Sub(a.StartedAt)),
			workerText(a.WorkerName, a.Host, a.PID))
		if undivided != "" {
			fmt.Fprintf(&b, "    not divided: %s\n", undivided)
		}
		for line := range strings.Lines(a.Error) {
			fmt.Fprintf(&b, "    %s\n", usererr.Printable(strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "  ")))
		}
	}
	_, err := fmt.Fprint(c.out, b.String())
	return err
}

// transcodeTexts says with which encoder a transcode was made, and why it was not divided. Both are empty for other
// results.
func transcodeTexts(result json.RawMessage) (encoder, undivided string) {
	var r struct {
		Output    struct{ Encoder string }
		Undivided string
	}
	if json.Unmarshal(result, &r) != nil {
		return "", "" // of another pipeline
	}
	if r.Output.Encoder != "" {
		encoder = " with " + usererr.Printable(r.Output.Encoder)
	}
	return encoder, usererr.Printable(r.Undivided)
}
