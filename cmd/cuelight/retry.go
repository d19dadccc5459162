package main

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

type retryOptions struct {
	filter *filterFlags
	from   string
	all    bool
	yes    bool
}

func (c *cli) retryCommand() *cobra.Command {
	o := &retryOptions{}
	cmd := &cobra.Command{
		Use:   "retry ID... | --all",
		Short: "Do again what died, or a stage and all after it",
		Long: `Retry does again what died, failed or was cancelled of the given tasks; with
--from, that stage and all that depend on it, whatever became of them. A worker
that is busy with one of them is told to stop. What is published stays in place
until the new version is complete.

With --all it does so for every task that the filters choose when it begins, some
thousand at a time. Without --status and --stage those are the dead ones.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.retry(cmd.Context(), args, o)
		},
	}
	o.filter = addFilterFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "the stage to begin with")
	f.BoolVar(&o.all, "all", false, "all tasks that the filters choose")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	c.jsonFlag(cmd)
	// It only fails for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(store.Video().Stages(), cobra.ShellCompDirectiveNoFileComp))
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
		return usererr.Usagef("either --all or ids, not both")
	case !o.all && filtered:
		return usererr.Usagef("the filters choose among all tasks: add --all")
	case !o.all && len(args) == 0:
		return usererr.Usagef("which tasks? name their ids, or choose with --all")
	}
	if filter.Status == "" && filter.Stage == "" {
		filter.Status = store.StatusDead
	}
	return c.withTasks(ctx, func(db *dbconn.Database) error {
		if o.all {
			return c.retryAll(ctx, db, filter, o)
		}
		return c.eachTask(ctx, db.Store, args, func(id store.ID) error {
			return c.retryOne(ctx, db.Store, id, o.from)
		})
	})
}

func (c *cli) retryOne(ctx context.Context, st *store.Store, id store.ID, from string) error {
	before, err := st.Get(ctx, id)
	if err != nil {
		return err
	}
	err = c.audited(ctx, st, "retry", id.String(), map[string]any{"from": from}, func(in *store.Store) error { return in.Retry(ctx, id, from) })
	if err != nil {
		return err
	}
	after, err := st.Get(ctx, id)
	if err != nil {
		return err
	}
	// It may have died between the two looks; then it is not completed now.
	if from == "" && (after.Status == store.StatusCompleted || !hasFailed(before)) {
		return c.acted(id, string(after.Status)+": nothing to do again; --from STAGE does it anyway")
	}
	return c.acted(id, "waits to be done again")
}

// hasFailed reports whether there is something that retry would do again.
func hasFailed(t store.Task) bool {
	return slices.ContainsFunc(t.Stages, func(s store.StageState) bool {
		return s.Status == store.StatusDead || s.Status == store.StatusFailed || s.Status == store.StatusCancelled
	})
}

func (c *cli) retryAll(ctx context.Context, db *dbconn.Database, filter store.Filter, o *retryOptions) error {
	if !o.yes && !c.interactive() {
		return &usererr.Error{Kind: usererr.Usage, Text: "--all changes many tasks, and nobody can be asked here: nothing was changed", Hint: "--yes does it without a question"}
	}
	if !o.yes {
		filter.Limit = 1000
		tasks, err := db.Store.List(ctx, store.ListQuery{Filter: filter})
		if err != nil {
			return err
		}
		count := plural(len(tasks), "task")
		if len(tasks) == filter.Limit {
			count = fmt.Sprintf("%d tasks or more", len(tasks))
		}
		if len(tasks) > 0 && !c.confirm(fmt.Sprintf("Do %s again?", count)) {
			return &usererr.Error{Kind: usererr.Failure, Text: "nothing was changed"}
		}
	}
	r, err := db.Store.RetryAll(ctx, filter, o.from, store.RetryAllOptions{
		Audit: func(tasks int) (store.AuditEntry, error) {
			return auditEntry("retry_all", "", map[string]any{"from": o.from, "filter": o.filter.given(), "tasks": tasks})
		},
		Progress: func(r store.RetryAllResult) {
			if r.Remaining > 0 {
				fmt.Fprintf(c.err, "%d of %d tasks\n", r.Matched-r.Remaining, r.Matched)
			}
		},
	})
	if err != nil {
		if r.Retried > 0 {
			fmt.Fprintf(c.err, "%s to be done again before it ended; the same command goes on with the rest\n", plural(r.Retried, "task"))
		}
		return err
	}
	if c.json {
		return c.writeJSON(map[string]int{"retried": r.Retried})
	}
	_, err = fmt.Fprintf(c.out, "%s to be done again\n", plural(r.Retried, "task"))
	return err
}

func (c *cli) cancelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel ID...",
		Short: "Stop tasks, on whichever host they are worked on",
		Long: `Cancel ends tasks: what is not done will not be, and what is running, on
whichever host, is stopped. What is completed, and published, stays. A cancelled
task can be taken up again: cuelight retry.`,
		Args: atLeastOne("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return c.withTasks(ctx, func(db *dbconn.Database) error {
				return c.eachTask(ctx, db.Store, args, func(id store.ID) error {
					err := c.audited(ctx, db.Store, "cancel", id.String(), nil, func(in *store.Store) error { return in.Cancel(ctx, id) })
					if err != nil {
						return err
					}
					t, err := db.Store.Get(ctx, id)
					if err != nil {
						return err
					}
					return c.acted(id, string(t.Status))
				})
			})
		},
	}
	c.jsonFlag(cmd)
	return cmd
}

// acted confirms what was done to a task.
func (c *cli) acted(id store.ID, what string) error {
	if c.json {
		return c.writeJSON(map[string]store.ID{"task_id": id})
	}
	_, err := fmt.Fprintf(c.out, "%s: %s\n", id, what)
	return err
}

// interactive reports whether somebody can be asked.
func (c *cli) interactive() bool {
	f, ok := c.in.(interface{ Fd() uintptr })
	return ok && c.err.terminal && term.IsTerminal(int(f.Fd()))
}

// confirm asks a question to which the default answer is no.
func (c *cli) confirm(question string) bool {
	fmt.Fprintf(c.err, "%s [y/N] ", question)
	answered := make(chan string, 1)
	go func() {
		// A terminal cannot be told to stop waiting for its user. The goroutine
		// ends with the next line, or with the process.
		line, _ := bufio.NewReader(c.in).ReadString('\n')
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answered:
		return answer == "y" || answer == "yes"
	case <-c.sig.ctx.Done():
		fmt.Fprintln(c.err)
		return false
	}
}
