package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

type retryOptions struct {
	filter *filterFlags
	from   string
	fresh  bool
	only   heights
	all    bool
	yes    bool
}

func (c *cli) retryCommand() *cobra.Command {
	o := &retryOptions{}
	cmd := &cobra.Command{
		Use:   "retry ID... | --all",
		Short: "Retry dead tasks, or a stage and all after it",
		Long: `Retry retries the dead, failed and cancelled stages of the given tasks; with --from,
that stage and all that depend on it, whatever their status. Workers that run one
of them stop. A published video stays until its new version is complete.

A stage that was divided into parts keeps the completed ones, unless it is completed or
a stage before it is retried. With --fresh it is divided again, and all parts are done
again.

With --renditions transcode makes only these again and keeps the others, and adds those
that the video lacks. The task must have been transcoded before.

With --all it retries every task that the filters select when it begins, in batches.
Without --status and --stage these are the dead ones.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.retry(cmd.Context(), args, o)
		},
	}
	o.filter = addFilterFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "retry from this stage on")
	f.BoolVar(&o.fresh, "fresh", false, "keep no completed parts of the retried stages")
	f.Var(&o.only, "renditions", "heights to make again, such as 1080p,720p, from transcode on")
	f.BoolVar(&o.all, "all", false, "retry all tasks that the filters select")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask for confirmation")
	c.jsonFlag(cmd)
	completeWith(cmd, "from", store.Video().Stages())
	return cmd
}

func (c *cli) retry(ctx context.Context, args []string, o *retryOptions) error {
	filter, err := o.filter.filter()
	if err != nil {
		return err
	}
	if o.from != "" {
		if err := checkStage(o.from); err != nil {
			return err
		}
	}
	filtered := *o.filter != filterFlags{}
	switch {
	case o.all && len(args) > 0:
		return usererr.Usagef("--all cannot be combined with ids")
	case o.all && o.fresh:
		return usererr.Usagef("--all cannot be combined with --fresh: give the ids of the tasks")
	case o.all && len(o.only) > 0:
		return usererr.Usagef("--all cannot be combined with --renditions: give the ids of the tasks")
	case !o.all && filtered:
		return usererr.Usagef("filters select among all tasks: add --all")
	case !o.all && len(args) == 0:
		return usererr.Usagef("ids of tasks or --all are required")
	}
	if filter.Status == "" && filter.Stage == "" {
		filter.Status = store.StatusDead
	}
	return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
		if o.all {
			return c.retryAll(ctx, db, filter, o)
		}
		return c.eachTask(ctx, db.Store, args, func(id store.ID) error {
			return c.retryOne(ctx, db, id, o)
		})
	})
}

func (c *cli) retryOne(ctx context.Context, db *dbconn.Database, id store.ID, o *retryOptions) error {
	before, err := db.Store.Get(ctx, id)
	if err != nil {
		return err
	}
	if err := c.actions(db).Retry(ctx, id, ops.RetryOptions{From: o.from, Fresh: o.fresh, Renditions: o.only}); err != nil {
		return err
	}
	after, err := db.Store.Get(ctx, id)
	if err != nil {
		return err
	}
	// A stage may have died after the first query; then the task is not completed now.
	if o.from == "" && len(o.only) == 0 && (after.Status == store.StatusCompleted || !hasFailed(before)) {
		return c.printResult(id, string(after.Status)+": nothing to retry; --from STAGE retries anyway")
	}
	return c.printResult(id, "scheduled for retry")
}

// hasFailed reports whether a task has stages to retry.
func hasFailed(t store.Task) bool {
	return slices.ContainsFunc(t.Stages, func(s store.StageState) bool {
		return s.Status == store.StatusDead || s.Status == store.StatusFailed || s.Status == store.StatusCancelled
	})
}

func (c *cli) retryAll(ctx context.Context, db *dbconn.Database, filter store.Filter, o *retryOptions) error {
	if err := c.confirmRetryAll(ctx, db, filter, o.yes); err != nil {
		return err
	}
	r, err := c.actions(db).RetryAll(ctx, filter, o.from, o.filter.given(), store.RetryAllOptions{
		Progress: func(r store.RetryAllResult) {
			if r.Remaining > 0 {
				fmt.Fprintf(c.err, "%d of %d tasks\n", r.Matched-r.Remaining, r.Matched)
			}
		},
	})
	if err != nil {
		if r.Retried > 0 {
			fmt.Fprintf(c.err, "%s scheduled before the error; the same command continues with the rest\n",
				console.Plural(r.Retried, "task"))
		}
		return err
	}
	return c.print(map[string]int{"retried": r.Retried}, "%s scheduled for retry", console.Plural(r.Retried, "task"))
}

// confirmRetryAll asks the user, with the number of tasks.
func (c *cli) confirmRetryAll(ctx context.Context, db *dbconn.Database, filter store.Filter, yes bool) error {
	if yes {
		return nil
	}
	if !c.isInteractive() {
		return &usererr.Error{
			Kind: usererr.Usage, Text: "--all needs confirmation, and there is no terminal to ask on: nothing was changed",
			Hint: "--yes skips the question",
		}
	}
	filter.Limit = 1000
	tasks, err := db.Store.List(ctx, store.ListQuery{Filter: filter})
	if err != nil {
		return err
	}
	count := console.Plural(len(tasks), "task")
	if len(tasks) == filter.Limit {
		count = fmt.Sprintf("%d tasks or more", len(tasks))
	}
	if len(tasks) > 0 && !c.confirm(fmt.Sprintf("Retry %s?", count)) {
		return &usererr.Error{Text: "nothing was changed"}
	}
	return nil
}

func (c *cli) cancelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel ID...",
		Short: "Cancel tasks, on whichever host they run",
		Long: `Cancel cancels tasks: running stages are stopped, on whichever host, and the others
never start. Completed stages and published videos stay. cuelight retry retries a
cancelled task.`,
		Args: atLeastOne("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
				return c.eachTask(ctx, db.Store, args, func(id store.ID) error {
					if err := c.actions(db).Cancel(ctx, id); err != nil {
						return err
					}
					t, err := db.Store.Get(ctx, id)
					if err != nil {
						return err
					}
					return c.printResult(id, string(t.Status))
				})
			})
		},
	}
	c.jsonFlag(cmd)
	return cmd
}

// printResult prints what an action did to a task.
func (c *cli) printResult(id store.ID, result string) error {
	return c.print(map[string]store.ID{"task_id": id}, "%s: %s", id, result)
}
