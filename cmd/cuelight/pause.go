package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// actor says in the audit who uses the command line.
func actor() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return name + "@" + host
}

// audited does something to the tasks or the workers, and writes down that it was
// done in the same transaction.
func (c *cli) audited(ctx context.Context, st *store.Store, action, target string, detail map[string]any, do func(in *store.Store) error) error {
	return st.WithAudit(ctx, func(in *store.Store) (store.AuditEntry, error) {
		if err := do(in); err != nil {
			return store.AuditEntry{}, err
		}
		return auditEntry(action, target, detail)
	})
}

// auditEntry says what this user does.
func auditEntry(action, target string, detail map[string]any) (e store.AuditEntry, err error) {
	e = store.AuditEntry{Actor: actor(), Action: action, Target: target}
	if detail != nil {
		e.Detail, err = json.Marshal(detail)
	}
	return e, err
}

func (c *cli) pauseCommand() *cobra.Command {
	var p store.Pause
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Begin nothing new, in a stage, on a host, or at all",
		Long: `Pause keeps the workers from beginning anything new: in one stage with --stage, on
one host with --host, both, or at all. What is running goes on. It lasts until
cuelight resume with the same flags, also over restarts, and for hosts that are not
there yet.

With --list it says what is paused.`,
		Args: noArguments,
	}
	list := cmd.Flags().Bool("list", false, "say what is paused")
	yes := cmd.Flags().BoolP("yes", "y", false, "do not ask")
	pauseFlags(cmd, &p)
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if *list {
			return c.withTasks(ctx, func(db *dbconn.Database) error { return c.listPauses(ctx, db.Store) })
		}
		if err := checkPause(p); err != nil {
			return err
		}
		return c.withTasks(ctx, func(db *dbconn.Database) error {
			if p == (store.Pause{}) && !*yes && c.interactive() && !c.confirm("Begin nothing new, on any host?") {
				return &usererr.Error{Kind: usererr.Failure, Text: "nothing was changed"}
			}
			c.warnNobody(ctx, db.Store, p.Host)
			p.By = actor()
			err := c.audited(ctx, db.Store, "pause", pauseTarget(p), nil, func(in *store.Store) error { return in.Pause(ctx, p) })
			if err != nil {
				return err
			}
			return c.toldPause(p, "paused")
		})
	}
	return cmd
}

// warnNobody warns of a host where nobody works, whose name may be misspelt. As it
// may be that of one to come, the question's errors do not count.
func (c *cli) warnNobody(ctx context.Context, st *store.Store, host string) {
	if host == "" {
		return
	}
	workers, err := st.Workers(ctx, false)
	if err != nil || slices.ContainsFunc(workers, func(w store.Worker) bool { return w.Host == host }) {
		return
	}
	fmt.Fprintf(c.err, "cuelight: warning: no worker is on a host of the name %s now\n", usererr.Printable(host))
}

func (c *cli) resumeCommand() *cobra.Command {
	var p store.Pause
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long: `Resume ends what cuelight pause with the same flags began. Other pauses stay: what
is paused by its stage and by its host goes on when both are resumed. With --all
every pause ends.`,
		Args: noArguments,
	}
	all := cmd.Flags().Bool("all", false, "end every pause")
	pauseFlags(cmd, &p)
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		if err := checkPause(p); err != nil {
			return err
		}
		if *all && p != (store.Pause{}) {
			return usererr.Usagef("either --all, or --stage and --host")
		}
		return c.withTasks(ctx, func(db *dbconn.Database) error {
			pauses := []store.Pause{p}
			if *all {
				var err error
				if pauses, err = db.Store.Pauses(ctx); err != nil {
					return err
				}
			}
			for _, p := range pauses {
				if err := c.resumeOne(ctx, db.Store, p); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}

func (c *cli) resumeOne(ctx context.Context, st *store.Store, p store.Pause) error {
	there := false
	err := st.WithAudit(ctx, func(in *store.Store) (e store.AuditEntry, err error) {
		if there, err = in.Resume(ctx, p); there {
			e = store.AuditEntry{Actor: actor(), Action: "resume", Target: pauseTarget(p)}
		}
		return e, err
	})
	switch {
	case err != nil:
		return err
	case !there:
		return &usererr.Error{Kind: usererr.NotFound, Text: pauseTarget(p) + " is not paused", Hint: "cuelight pause --list says what is"}
	}
	return c.toldPause(p, "resumed")
}

func pauseFlags(cmd *cobra.Command, p *store.Pause) {
	f := cmd.Flags()
	f.StringVar(&p.Stage, "stage", "", "this stage alone")
	f.StringVar(&p.Host, "host", "", "this host alone, by its name in cuelight workers")
	// It only fails for a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc("stage", cobra.FixedCompletions(store.Video().Stages(), cobra.ShellCompDirectiveNoFileComp))
}

func checkPause(p store.Pause) error {
	if p.Stage == "" {
		return nil
	}
	return checkStage(p.Stage)
}

// pauseTarget names what is paused.
func pauseTarget(p store.Pause) string {
	what := "everything"
	if p.Stage != "" {
		what = "stage " + p.Stage
	}
	if p.Host != "" {
		what += " on host " + usererr.Printable(p.Host)
	}
	return what
}

func (c *cli) toldPause(p store.Pause, what string) error {
	if c.json {
		return c.writeJSON(map[string]string{what: pauseTarget(p), "stage": p.Stage, "host": p.Host})
	}
	_, err := fmt.Fprintf(c.out, "%s: %s\n", pauseTarget(p), what)
	return err
}

func (c *cli) listPauses(ctx context.Context, st *store.Store) error {
	pauses, err := st.Pauses(ctx)
	if err != nil {
		return err
	}
	if len(pauses) == 0 && !c.json {
		fmt.Fprintln(c.err, "cuelight: nothing is paused")
		return nil
	}
	t := table{to: c.out, head: []string{"PAUSED", "SINCE", "BY"}}
	for _, p := range pauses {
		if c.json {
			if err := c.writeJSON(p); err != nil {
				return err
			}
			continue
		}
		t.add(pauseTarget(p), span(time.Since(p.At))+" ago", usererr.Printable(p.By))
	}
	if c.json {
		return nil
	}
	return t.write()
}

func (c *cli) drainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain WORKER...",
		Short: "Let workers finish what they do, and stop",
		Long: `Drain tells workers, by their ids in cuelight workers or the ends of these, to
begin nothing new, to finish what is running, however long that takes, and to stop.
Their tasks go on elsewhere. A worker does not come back by itself: to have a host
stand still for a while, cuelight pause --host.`,
		Args: atLeastOne("WORKER"),
	}
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx := cmd.Context()
		return c.withTasks(ctx, func(db *dbconn.Database) error {
			return c.each(ctx, args, func(word string) error { return c.drainOne(ctx, db.Store, word) })
		})
	}
	return cmd
}

func (c *cli) drainOne(ctx context.Context, st *store.Store, word string) error {
	workers, err := st.Workers(ctx, false)
	if err != nil {
		return err
	}
	var found []store.Worker
	for _, w := range workers {
		if idEndsIn(w.ID, word) {
			found = append(found, w)
		}
	}
	if len(found) != 1 {
		text := fmt.Sprintf("no worker's id ends in %q", word)
		if len(found) > 1 {
			text = fmt.Sprintf("the ids of %d workers end in %q", len(found), word)
		}
		return &usererr.Error{Kind: usererr.NotFound, Text: text, Hint: "cuelight workers lists them"}
	}
	w := found[0]
	err = c.audited(ctx, st, "drain", w.ID.String(), nil, func(in *store.Store) error { return in.DrainWorker(ctx, w.ID) })
	switch {
	case errors.Is(err, store.ErrWorkerUnknown):
		return &usererr.Error{Kind: usererr.NotFound, Text: "worker " + w.ID.String() + " is not there any more"}
	case err != nil:
		return err
	case c.json:
		return c.writeJSON(map[string]any{"worker_id": w.ID, "running": len(w.Running)})
	}
	_, err = fmt.Fprintf(c.out, "%s, process %d on %s: finishes %s and stops\n", w.ID, w.PID, usererr.Printable(w.Host), plural(len(w.Running), "stage"))
	return err
}
