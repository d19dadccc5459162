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

func (c *cli) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Long: `List lists tasks, newest first. The last column but one says where a task is: the
stages that are being worked on, or that failed. With --json every task is one
line with all there is, as the HTTP API has it.

On a terminal ids are shortened; their ends can be used like ids.`,
		Args: noArguments,
	}
	filter := addFilterFlags(cmd)
	limit := cmd.Flags().Int("limit", 100, "at most so many tasks")
	after := cmd.Flags().String("after", "", "only tasks older than the one with this id, for the next page")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := filter.filter()
		if err != nil {
			return err
		}
		if *limit < 1 {
			return usererr.Usagef("--limit %d: it is at least 1", *limit)
		}
		f.Limit = *limit
		err = c.withTasks(cmd.Context(), func(db *dbconn.Database) error {
			return c.list(cmd.Context(), db, f, *after)
		})
		return c.orNothing(err)
	}
	return cmd
}

func (c *cli) list(ctx context.Context, db *dbconn.Database, f store.Filter, after string) (err error) {
	if after != "" {
		if f.After, err = db.Store.Find(ctx, strings.ToLower(after)); err != nil {
			return err
		}
	}
	tasks, err := db.Store.List(ctx, store.ListQuery{Filter: f})
	if err != nil {
		return err
	}
	if len(tasks) == 0 {
		fmt.Fprintln(c.err, "cuelight: no tasks")
		return nil
	}
	if c.json {
		for _, t := range tasks {
			if err := c.writeJSON(t); err != nil {
				return err
			}
		}
		return nil
	}
	t := console.Table{Out: c.out, Header: []string{"ID", "AGE", "STATUS", "AT", "SOURCE"}}
	for _, task := range tasks {
		id := task.ID.String()
		if c.out.Terminal {
			id = shortID(task.ID)
		}
		t.Add(id, console.Duration(time.Since(task.CreatedAt)), string(task.Status), whereabouts(task), shownTask(task))
	}
	t.Paint(2, statusColours)
	if err := t.Write(); err != nil {
		return err
	}
	if len(tasks) == f.Limit {
		fmt.Fprintf(c.err, "cuelight: there may be more: --limit, or --after %s\n", shortID(tasks[len(tasks)-1].ID))
	}
	return nil
}

// whereabouts names the stages at which a task is.
func whereabouts(t store.Task) string {
	for _, status := range []store.Status{store.StatusDead, store.StatusInProgress, store.StatusFailed} {
		var at []string
		for _, s := range t.Stages {
			if s.Status == status {
				at = append(at, s.Name)
			}
		}
		if len(at) > 0 {
			return strings.Join(at, "+")
		}
	}
	if next := nextStages(t); len(next) > 0 {
		return strings.Join(next, "+") + " next"
	}
	return "-"
}

// nextStages are those that wait for a worker and nothing else.
func nextStages(t store.Task) (next []string) {
	graph := store.Video()
	blocked := make(map[int]bool)
	for i, s := range t.Stages {
		if s.Status != store.StatusCompleted {
			for _, j := range graph.Feeds(i) {
				blocked[j] = true
			}
		}
	}
	for i, s := range t.Stages {
		if s.Status == store.StatusPending && !blocked[i] {
			next = append(next, s.Name)
		}
	}
	return next
}

var statusColours = map[string]string{
	string(store.StatusCompleted): console.Green, string(store.StatusDead): console.Red, string(store.StatusFailed): console.Yellow, string(store.StatusCancelled): console.Dim,
}
