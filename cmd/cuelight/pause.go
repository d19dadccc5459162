package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

func (c *cli) pauseCommand() *cobra.Command {
	var p store.Pause
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Pause claiming for a stage, a host, or everything",
		Long: `Pause stops workers from claiming work: of one stage with --stage, on one host with
--host, of one stage on one host with both, or everywhere. Running stages continue.
A pause lasts until cuelight resume with the same flags, across restarts, and also
applies to hosts that join later.

With --list it lists the pauses.`,
		Args: noArguments,
	}
	list := cmd.Flags().Bool("list", false, "list the pauses")
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	addPauseFlags(cmd, &p)
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if err := checkPause(p); err != nil {
			return err
		}
		return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
			if *list {
				return c.listPauses(ctx, db.Store)
			}
			if p == (store.Pause{}) && !*yes && c.isInteractive() && !c.confirm("Pause everything, on all hosts?") {
				return &usererr.Error{Text: "nothing was changed"}
			}
			c.warnUnknownHost(ctx, db.Store, p.Host)
			if err := c.actions(db).Pause(ctx, p); err != nil {
				return err
			}
			return c.printPause(p, "paused")
		})
	}
	return cmd
}

// warnUnknownHost warns of a host without workers, whose name may be misspelt. The host
// may still join, so errors are ignored.
func (c *cli) warnUnknownHost(ctx context.Context, st *store.Store, host string) {
	if host == "" {
		return
	}
	workers, err := st.Workers(ctx, false)
	if err != nil || slices.ContainsFunc(workers, func(w store.Worker) bool { return w.Host == host }) {
		return
	}
	fmt.Fprintf(c.err, "cuelight: warning: there is no worker on host %s now\n", usererr.Printable(host))
}

func (c *cli) resumeCommand() *cobra.Command {
	var p store.Pause
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long: `Resume ends the pause that cuelight pause began with the same flags. Other pauses
stay: a stage that is paused both by itself and by its host continues when both are
resumed. With --all every pause ends.`,
		Args: noArguments,
	}
	all := cmd.Flags().Bool("all", false, "end every pause")
	addPauseFlags(cmd, &p)
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if err := checkPause(p); err != nil {
			return err
		}
		if *all && p != (store.Pause{}) {
			return usererr.Usagef("--all cannot be combined with --stage or --host")
		}
		return c.withExistingDatabase(ctx, func(db *dbconn.Database) (err error) {
			pauses := []store.Pause{p}
			if *all {
				if pauses, err = db.Store.Pauses(ctx); err != nil {
					return err
				}
			}
			for _, p := range pauses {
				if err := c.resumeOne(ctx, db, p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}

func (c *cli) resumeOne(ctx context.Context, db *dbconn.Database, p store.Pause) error {
	err := c.actions(db).Resume(ctx, p)
	if errors.Is(err, store.ErrNotFound) {
		text := usererr.Printable(ops.PauseScope(p)) + " is not paused"
		return &usererr.Error{Kind: usererr.NotFound, Text: text, Hint: "cuelight pause --list lists the pauses"}
	}
	if err != nil {
		return err
	}
	return c.printPause(p, "resumed")
}

func addPauseFlags(cmd *cobra.Command, p *store.Pause) {
	f := cmd.Flags()
	f.StringVar(&p.Stage, "stage", "", "only this stage")
	f.StringVar(&p.Host, "host", "", "only this host, as the column HOST of cuelight workers has it")
	completeWith(cmd, "stage", store.Video().Stages())
}

func checkPause(p store.Pause) error {
	if p.Stage == "" {
		return nil
	}
	return checkStage(p.Stage)
}

func (c *cli) printPause(p store.Pause, state string) error {
	scope := usererr.Printable(ops.PauseScope(p))
	return c.print(map[string]string{state: scope, "stage": p.Stage, "host": p.Host}, "%s: %s", scope, state)
}

func (c *cli) listPauses(ctx context.Context, st *store.Store) error {
	pauses, err := st.Pauses(ctx)
	if err != nil {
		return err
	}
	return printList(c, pauses, "pauses", "PAUSED SINCE BY", func(p store.Pause) []string {
		return []string{usererr.Printable(ops.PauseScope(p)), age(p.At) + " ago", usererr.Printable(p.By)}
	})
}

func (c *cli) drainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain WORKER...",
		Short: "Let workers finish their work and stop",
		Long: `Drain makes workers stop claiming, finish what is running, however long that takes,
and stop. Other workers go on with their tasks. WORKER is a name or an id from
cuelight workers, or the end of an id. A drained worker does not start again by
itself: to stop a host temporarily, use cuelight pause --host.`,
		Args: atLeastOne("WORKER"),
	}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
			return c.each(ctx, args, func(word string) error { return c.drainOne(ctx, db, word) })
		})
	}
	return cmd
}

func (c *cli) drainOne(ctx context.Context, db *dbconn.Database, word string) error {
	workers, err := db.Store.Workers(ctx, false)
	if err != nil {
		return err
	}
	w, err := namedKind[store.Worker]{
		kind: "worker", identifier: "name or id", listCommand: "cuelight workers",
		matches: func(w store.Worker, word string) bool { return w.Name == word && word != "" || idEndsIn(w.ID, word) },
		describe: func(w store.Worker) string {
			return fmt.Sprintf("%s (%s, %s)", shortID(w.ID), w.Kind(), workerText(w.Name, w.Host, w.PID))
		},
	}.find(workers, word)
	if err != nil {
		return err
	}
	err = c.actions(db).DrainWorker(ctx, w.ID)
	if errors.Is(err, store.ErrWorkerUnknown) {
		err = &usererr.Error{Kind: usererr.NotFound, Text: "worker " + w.ID.String() + " has stopped already"}
	}
	if err != nil {
		return err
	}
	does := "stops now"
	if n := len(w.Running); n > 0 {
		does = "finishes " + console.Plural(n, "stage") + " and stops"
	}
	return c.print(map[string]any{"worker_id": w.ID, "running": len(w.Running)},
		"%s, %s: %s", w.ID, workerText(w.Name, w.Host, w.PID), does)
}
