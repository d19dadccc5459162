package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

type submitOptions struct {
	params, requestID, user, context, notBefore string
	priority                                    int16
	replaces                                    []string
	placement                                   store.Placement
	video                                       videoFlags
	captions                                    captionsFlag
	wait                                        bool
}

func (c *cli) submitCommand() *cobra.Command {
	o := &submitOptions{}
	cmd := &cobra.Command{
		Use:   "submit FILE|URL...",
		Short: "Submit tasks for daemons",
		Long: `Submit submits a task for each file or URL, and prints its id. A daemon works on it,
see cuelight serve. A path must lead to the same file where the daemon runs, unless
--data-dir is a bucket: then the file is copied there, and any daemon can ingest it.

With --replaces the new task replaces others: their running stages are stopped, they
never run again, and what they published stays.

With --wait it waits until the tasks have ended, and reports on them, with the exit
codes of cuelight run.`,
		Args: atLeastOne("FILE or URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.submit(cmd.Context(), args, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.params, "params", "{}", "parameters, a JSON object such as '{\"title\": \"Holiday\"}'")
	o.video.add(f)
	f.Int16Var(&o.priority, "priority", 0, "tasks of higher priority go first")
	f.StringVar(&o.requestID, "request-id", "",
		"idempotency key: submitting the source again with the same id returns the first task")
	f.StringVar(&o.user, "user", "", "user that the task belongs to")
	f.StringVar(&o.context, "context", "",
		"JSON object, or @FILE with one, that the task and its events return as it is")
	f.StringVar(&o.notBefore, "not-before", "",
		"do not start before this time, such as 2030-01-31T08:00:00Z, or delay, such as 90m")
	f.Var((*labels)(&o.placement.Requires), "requires",
		"label or encoder that the worker of the transcode must have; repeatable")
	f.Var((*labels)(&o.placement.Prefers), "prefers",
		"label or encoder that it should have: other workers wait for --prefer-wait; repeatable")
	f.DurationVar(&o.placement.Wait, "prefer-wait", store.DefaultPlacementWait, "how long they leave the transcode to workers with --prefers")
	f.StringSliceVar(&o.replaces, "replaces", nil, "ids of tasks that the new one replaces; repeatable")
	o.captions.add(f)
	f.BoolVar(&o.wait, "wait", false, "wait until the tasks have ended")
	c.jsonFlag(cmd)
	return cmd
}

func (c *cli) submit(ctx context.Context, args []string, o *submitOptions) error {
	subs, err := o.submissions(args)
	if err != nil {
		return err
	}
	files, err := o.captions.read(args)
	if err != nil {
		return err
	}
	c.warnMissingFiles(subs)
	bucket, err := c.dataBucket()
	if err != nil {
		return err
	}
	return c.withDatabase(ctx, func(db *dbconn.Database) error {
		tracer, flush := c.startTracing(ctx)
		defer flush() // after the ids are printed: a slow collector delays nothing
		traceparent, done := c.traceSubmission(ctx, tracer)
		if err := profiles.Prepare(ctx, db.Store, subs); err != nil {
			done(err)
			return err
		}
		for i := range subs {
			subs[i].Traceparent = traceparent
			if err := daemon.StoreSource(ctx, db.Store, bucket, &subs[i]); err != nil {
				done(err)
				return err
			}
		}
		var receipts []store.Receipt
		err := db.Store.InTx(ctx, func(in *store.Store) (err error) { // a task without its captions would not be submitted again
			do := c.actions(db)
			do.Store = in
			if receipts, err = submitOrReplace(ctx, do, subs, o.replaces); err == nil {
				err = attachAll(ctx, do, files, receipts[0])
			}
			return err
		})
		done(err)
		if err != nil {
			return err
		}
		c.warnNoWorkers(ctx, db.Store, subs[0].Placement["transcode"].Requires)
		if o.wait {
			var tasks []awaited
			for i, r := range receipts {
				tasks = append(tasks, awaited{r.ID, args[i]})
			}
			return c.watch(ctx, db, tasks, false)
		}
		return c.printReceipts(args, subs, receipts)
	})
}

func submitOrReplace(ctx context.Context, do ops.Actions, subs []store.Submission, replaces []string) ([]store.Receipt, error) {
	if len(replaces) == 0 {
		return do.Store.SubmitAll(ctx, subs)
	}
	var old []store.ID
	for _, word := range replaces {
		id, err := do.Store.Find(ctx, strings.ToLower(word))
		if err != nil {
			return nil, err
		}
		old = append(old, id)
	}
	r, err := do.Override(ctx, old, subs[0])
	return []store.Receipt{r}, err
}

func (c *cli) printReceipts(args []string, subs []store.Submission, receipts []store.Receipt) (err error) {
	for i, r := range receipts {
		if c.json {
			err = c.writeJSON(struct {
				TaskID  store.ID `json:"task_id"`
				Source  string   `json:"source"`
				Existed bool     `json:"existed"`
			}{r.ID, validSource(args[i], subs[i].Source), r.Existed})
		} else {
			_, err = fmt.Fprintln(c.out, r.ID)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (o *submitOptions) submissions(args []string) ([]store.Submission, error) {
	if o.requestID != "" && len(args) > 1 {
		return nil, usererr.Usagef("--request-id identifies one task, but there are %d sources", len(args))
	}
	if len(o.replaces) > 0 && len(args) > 1 {
		return nil, usererr.Usagef("--replaces replaces tasks by one new task, but there are %d sources", len(args))
	}
	params, err := parseParams(o.params)
	if err == nil {
		params, err = o.video.addTo(params)
	}
	if err != nil {
		return nil, err
	}
	notBefore, err := parseTime(o.notBefore, time.Now())
	if err != nil {
		return nil, err
	}
	userContext, err := readUserContext(o.context)
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find working directory: %w", err)
	}
	placement := o.placements()
	var subs []store.Submission
	for _, arg := range args {
		source, err := sourceOf(arg, dir)
		if err != nil {
			return nil, err
		}
		subs = append(subs, store.Submission{
			Source: source, Params: params, Priority: o.priority, RequestID: o.requestID, UserID: o.user, NotBefore: notBefore,
			Placement: placement, UserContext: userContext,
		})
	}
	return subs, nil
}

// readUserContext returns the context that --context gives, or names the file of.
func readUserContext(text string) (json.RawMessage, error) {
	if file, ok := strings.CutPrefix(text, "@"); ok {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, usererr.Usagef("--context: cannot read %s: %s", file, usererr.SystemMessage(err))
		}
		text = string(raw)
	}
	return json.RawMessage(strings.TrimSpace(text)), nil
}

// placements is the placement by stage: that of the transcode, which needs most of a host.
func (o *submitOptions) placements() map[string]store.Placement {
	if len(o.placement.Requires)+len(o.placement.Prefers) == 0 {
		return nil
	}
	return map[string]store.Placement{"transcode": o.placement}
}

// warnMissingFiles warns of files that do not exist here. They may exist where the
// daemon runs.
func (c *cli) warnMissingFiles(subs []store.Submission) {
	for _, s := range subs {
		if s.Source[0] != '/' {
			continue
		}
		if _, err := os.Stat(s.Source); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(c.err, "cuelight: warning: %s does not exist on this machine\n", usererr.Printable(s.Source))
		}
	}
}

// warnNoWorkers warns if no worker would take the tasks, or do what requires some labels. They are
// submitted, so an error of this query does not matter.
func (c *cli) warnNoWorkers(ctx context.Context, st *store.Store, required []string) {
	workers, err := st.Workers(ctx, false)
	takesAny := func(w store.Worker) bool {
		return daemon.IsAlive(w) && !daemon.WorkspaceOf(w).OnlyOwnTasks
	}
	offersAll := func(w store.Worker) bool { return takesAny(w) && len(w.Lacks(required)) == 0 }
	switch {
	case err != nil:
	case !slices.ContainsFunc(workers, takesAny):
		fmt.Fprintln(c.err, "cuelight: no worker is running on this database; start one with cuelight serve")
	case !slices.ContainsFunc(workers, offersAll):
		fmt.Fprintf(c.err, "cuelight: warning: no running worker offers %s: the transcode waits for one; "+
			"cuelight workers lists what they offer\n", strings.Join(required, " and "))
	}
}
