package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID...",
		Short: "Show a task's stages, attempts, errors and progress",
		Long: `Show shows the stages of tasks, every attempt with its error, and the progress of
running attempts. The end of an id, four digits or more, selects the task if no other
task's id ends like that.`,
		Args: atLeastOne("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withExistingDatabase(cmd.Context(), func(db *dbconn.Database) error {
				return c.eachTask(cmd.Context(), db.Store, args, func(id store.ID) error {
					return c.show(cmd.Context(), db, id)
				})
			})
		},
	}
	c.jsonFlag(cmd)
	return cmd
}

// shownTask is what show prints of a task.
type shownTask struct {
	report.TaskDetails
	Published *string `json:"published"`
	Error     *string `json:"error"`
}

func (c *cli) show(ctx context.Context, db *dbconn.Database, id store.ID) error {
	details, err := report.Task(ctx, db.Store, id)
	if err != nil {
		return err
	}
	r, err := c.newReport(ctx, db.Store, details.Task, details.History, details.Source)
	if err != nil {
		return err
	}
	d := shownTask{details, r.Published, r.Error}
	if c.json {
		return c.writeJSON(d)
	}
	var b strings.Builder
	c.writeHead(&b, d)
	b.WriteString("\n")
	if _, err := fmt.Fprint(c.out, b.String()); err != nil {
		return err
	}
	if err := c.stageTable(d).Write(); err != nil {
		return err
	}
	return c.writeHistory(d.History)
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
	for _, text := range report.Placements(d.Task) {
		line("placement", usererr.Printable(text))
	}
	if !d.OverriddenBy.IsZero() {
		line("replaced by", d.OverriddenBy.String())
	}
	if d.Published != nil {
		line("published", usererr.Printable(*d.Published))
	}
	for _, w := range d.Warnings {
		line("warning", usererr.Printable(w))
	}
	if d.Error != nil {
		line("error", usererr.FirstLine(*d.Error))
	}
}

func (c *cli) stageTable(d shownTask) *console.Table {
	t := &console.Table{Out: c.out, Header: []string{"STAGE", "STATUS", "ATTEMPTS", "NOW"}}
	for _, s := range d.Stages {
		now := ""
		for _, r := range d.Running {
			if r.Stage == s.Name && r.Part == 0 {
				now = progressRow(r, "").String()
			}
		}
		if n := d.CountParts(s.Name); s.Status == store.StatusDivided || s.Status == store.StatusDead && n.All > 0 {
			now = n.String()
		}
		if s.RunAt != nil {
			now = "not before " + s.RunAt.Local().Format(time.DateTime)
		}
		t.Add(s.Name, string(s.Status), fmt.Sprint(s.Attempts), now)
	}
	for _, r := range d.Running {
		if r.Part > 0 {
			t.Add("  part "+fmt.Sprint(r.Part), string(store.StatusInProgress), fmt.Sprint(r.Attempt), progressRow(r, "").String())
		}
	}
	t.Paint(1, statusColours)
	return t
}

// writeHistory writes a line for each attempt, and its whole error below it.
func (c *cli) writeHistory(history []store.Attempt) error {
	if len(history) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("\n")
	for _, a := range history {
		fmt.Fprintf(&b, "%s  %s, attempt %d: %s%s after %s on %s\n", a.StartedAt.Local().Format(time.DateTime),
			stageText(a.Stage, a.Part, 0), a.Attempt, a.Outcome, encoderText(a.Result), console.Duration(a.FinishedAt.Sub(a.StartedAt)),
			workerText(a.WorkerName, a.Host, a.PID))
		for line := range strings.Lines(a.Error) {
			fmt.Fprintf(&b, "    %s\n", usererr.Printable(strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "  ")))
		}
	}
	_, err := fmt.Fprint(c.out, b.String())
	return err
}

// encoderText says with which encoder a transcode was made; it is empty for other results.
func encoderText(result json.RawMessage) string {
	var r struct {
		Output struct{ Encoder string }
	}
	if json.Unmarshal(result, &r) != nil || r.Output.Encoder == "" {
		return ""
	}
	return " with " + usererr.Printable(r.Output.Encoder)
}
