package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Long: `List lists tasks, newest first. The STAGE column shows the current stage: the stages
that are running, dead, failed or next, of a stage in parts how many of them are completed,
and what it waits for that no running worker offers. With --json every line is a task,
as in the HTTP API.

With --deleted it lists deleted tasks that are not purged yet, the last deleted one first.

On a terminal ids are shortened; commands accept the end of an id.`,
		Args: noArguments,
	}
	filter := addFilterFlags(cmd)
	limit := cmd.Flags().Int("limit", 100, "maximum number of tasks")
	after := cmd.Flags().String("after", "", "only tasks before this one, by its id, for the next page")
	deleted := cmd.Flags().Bool("deleted", false, "list deleted tasks instead; of the filters, with --user only")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := filter.filter()
		if err != nil {
			return err
		}
		if *limit < 1 {
			return invalidFlag("limit", *limit, "at least 1")
		}
		if *deleted && *filter != (filterFlags{user: filter.user}) {
			return usererr.Usagef("--deleted can be combined with --user only")
		}
		f.Limit = *limit
		err = c.withExistingDatabase(cmd.Context(), func(db *dbconn.Database) error {
			if *deleted {
				return c.listDeleted(cmd.Context(), db, f, *after)
			}
			return c.list(cmd.Context(), db, f, *after)
		})
		return c.ignoreNotCreated(err)
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
	var divided []report.PartsProgress
	var workers []store.Worker
	if !c.json {
		if workers, err = db.Store.Workers(ctx, false); err != nil {
			return err
		}
		if divided, err = report.New(db.Store.DB(), db.Store.Graph()).PartsProgress(ctx, tasks, report.ListedWorkers(workers)); err != nil {
			return err
		}
	}
	err = printList(c, tasks, "tasks", "ID AGE STATUS STAGE SOURCE", func(t store.Task) []string {
		id := t.ID.String()
		if c.out.IsTerminal {
			id = shortID(t.ID)
		}
		stages := currentStages(t, divided)
		for _, u := range report.UnofferedOf(t, workers) {
			stages += ", waits for a worker with " + strings.Join(u.Requires, " and ")
		}
		return []string{id, age(t.CreatedAt), string(t.Status), stages, titleOf(t)}
	})
	if err == nil && len(tasks) == f.Limit && !c.json {
		fmt.Fprintf(c.err, "cuelight: there may be more: use --limit, or --after %s\n", shortID(tasks[len(tasks)-1].ID))
	}
	return err
}

// runningWorkers reads the workers for [report.Reader.PartsProgress].
func runningWorkers(db *dbconn.Database) func(context.Context) ([]store.Worker, error) {
	return func(ctx context.Context) ([]store.Worker, error) { return db.Store.Workers(ctx, false) }
}

// currentStages names the stages that a task is at: those that are dead, running or
// failed, or the next ones. A stage that is divided is running.
func currentStages(t store.Task, divided []report.PartsProgress) string {
	for _, status := range []store.Status{store.StatusDead, store.StatusInProgress, store.StatusFailed} {
		var names []string
		for _, s := range t.Stages {
			isDivided := s.Status == store.StatusDivided
			if s.Status == status || isDivided && status == store.StatusInProgress {
				name := s.Name
				if p, ok := report.FindParts(divided, t.ID, s.Name); ok && isDivided && p.Parts > 1 {
					name += fmt.Sprintf(" %.0f%% (%d/%d)", p.Percent, p.Completed, p.Parts)
				}
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			return strings.Join(names, "+")
		}
	}
	if next := nextStages(t); len(next) > 0 {
		return strings.Join(next, "+") + " next"
	}
	return "-"
}

// nextStages returns the stages that are ready to be claimed.
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
