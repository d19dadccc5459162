package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
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
			return c.withTasks(cmd.Context(), func(db *dbconn.Database) error {
				return c.eachTask(cmd.Context(), db.Store, args, func(id store.ID) error {
					return c.show(cmd.Context(), db, id)
				})
			})
		},
	}
	c.jsonFlag(cmd)
	return cmd
}

// taskDetails is what show prints of a task.
type taskDetails struct {
	store.Task
	Published *string         `json:"published"`
	Error     *string         `json:"error"`
	Running   []store.Running `json:"running"`
	History   []store.Attempt `json:"history"`
	Warnings  []string        `json:"warnings"`
}

func (c *cli) readDetails(ctx context.Context, db *dbconn.Database, id store.ID) (taskDetails, error) {
	t, err := db.Store.Get(ctx, id)
	if err != nil {
		return taskDetails{}, err
	}
	published, err := c.PublishPath()
	if err != nil {
		return taskDetails{}, err
	}
	r, err := reportOn(ctx, db.Store, t, t.Source, published)
	if err != nil {
		return taskDetails{}, err
	}
	d := taskDetails{
		Task: t, Published: r.Published, Error: r.Error, Running: []store.Running{}, History: []store.Attempt{},
	}
	history, err := db.Store.History(ctx, id)
	if err != nil {
		return taskDetails{}, err
	}
	d.History = append(d.History, history...)
	d.Warnings = store.Warnings(history)
	workers, err := db.Store.Workers(ctx, false)
	if err != nil {
		return taskDetails{}, err
	}
	held := make(map[store.ID]bool)
	for _, s := range t.Stages {
		held[s.Token] = !s.Token.IsZero()
	}
	for _, w := range workers {
		for _, run := range w.Running {
			if held[run.Token] { // a worker's report is up to a second old
				d.Running = append(d.Running, run)
			}
		}
	}
	return d, nil
}

func (c *cli) show(ctx context.Context, db *dbconn.Database, id store.ID) error {
	d, err := c.readDetails(ctx, db, id)
	if err != nil {
		return err
	}
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
func (c *cli) writeHead(b *strings.Builder, d taskDetails) {
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
	line("request", usererr.Printable(d.RequestID))
	if string(d.Params) != "{}" {
		line("params", usererr.Printable(string(d.Params)))
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

func (c *cli) stageTable(d taskDetails) *console.Table {
	t := &console.Table{Out: c.out, Header: []string{"STAGE", "STATUS", "ATTEMPTS", "NOW"}}
	for _, s := range d.Stages {
		now := ""
		for _, r := range d.Running {
			if r.Stage == s.Name {
				now = progressRow(r, "").String()
			}
		}
		if s.RunAt != nil {
			now = "not before " + s.RunAt.Local().Format(time.DateTime)
		}
		t.Add(s.Name, string(s.Status), fmt.Sprint(s.Attempts), now)
	}
	t.Paint(1, statusColours)
	return t
}

func progressRow(r store.Running, label string) console.ProgressRow {
	return console.ProgressRow{
		Label: label, Stage: r.Stage, Percent: r.Percent, Speed: r.Speed,
		Remaining: time.Duration(r.ETA * float64(time.Second)), Note: r.Note,
	}
}

// writeHistory writes a line for each attempt, and its whole error below it.
func (c *cli) writeHistory(history []store.Attempt) error {
	if len(history) == 0 {
		return nil
	}
	var b strings.Builder
	b.WriteString("\n")
	for _, a := range history {
		fmt.Fprintf(&b, "%s  %s, attempt %d: %s after %s on %s (process %d)\n", a.StartedAt.Local().Format(time.DateTime),
			a.Stage, a.Attempt, a.Outcome, console.Duration(a.FinishedAt.Sub(a.StartedAt)), usererr.Printable(a.Host), a.PID)
		for line := range strings.Lines(a.Error) {
			fmt.Fprintf(&b, "    %s\n", usererr.Printable(strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "  ")))
		}
	}
	_, err := fmt.Fprint(c.out, b.String())
	return err
}
