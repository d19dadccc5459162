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

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

type submitOptions struct {
	params, requestID, user, notBefore string
	priority                           int16
	replaces                           []string
	wait                               bool
}

func (c *cli) submitCommand() *cobra.Command {
	o := &submitOptions{}
	cmd := &cobra.Command{
		Use:   "submit FILE|URL...",
		Short: "Add tasks for the workers",
		Long: `Submit adds a task for each file or address, and prints its id. A daemon, see
cuelight serve, works on it.

A path must mean the same file where the daemon runs.

With --replaces the new task takes the place of others: what runs of them is
stopped, they are never worked on again, and what they published stays where it is.

With --wait it waits until the tasks have ended, reports on them as cuelight run
does, and has its exit codes.`,
		Args: atLeastOne("FILE or URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.submit(cmd.Context(), args, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.params, "params", "{}", "parameters, a JSON object")
	f.Int16Var(&o.priority, "priority", 0, "tasks of higher priority go first")
	f.StringVar(&o.requestID, "request-id", "", "submitting the same source again with the same id changes nothing and prints the first task")
	f.StringVar(&o.user, "user", "", "whose task it is")
	f.StringVar(&o.notBefore, "not-before", "", "do not start earlier: a time such as 2030-01-31T08:00:00Z, or a pause such as 90m")
	f.StringSliceVar(&o.replaces, "replaces", nil, "ids of tasks that the new one replaces; repeatable")
	f.BoolVar(&o.wait, "wait", false, "wait until the tasks have ended")
	c.jsonFlag(cmd)
	return cmd
}

func (c *cli) submit(ctx context.Context, args []string, o *submitOptions) error {
	subs, err := o.submissions(args)
	if err != nil {
		return err
	}
	c.warnMissing(subs)
	return c.withDatabase(ctx, func(db *dbconn.Database) error {
		tracer, stop := c.startTracing(ctx)
		defer stop() // after the ids are told: a collector that is away holds up nobody
		traceparent, done := c.submitting(ctx, tracer)
		for i := range subs {
			subs[i].Traceparent = traceparent
		}
		receipts, err := o.add(ctx, db.Store, subs)
		done(err)
		if err != nil {
			return err
		}
		c.warnUnattended(ctx, db.Store)
		if o.wait {
			return c.waitFor(ctx, db, args, receipts)
		}
		for i, r := range receipts {
			if c.json {
				err = c.writeJSON(struct {
					TaskID  store.ID `json:"task_id"`
					Source  string   `json:"source"`
					Existed bool     `json:"existed"`
				}{r.ID, writable(args[i], subs[i].Source), r.Existed})
			} else {
				_, err = fmt.Fprintln(c.out, r.ID)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// add submits, and replaces what is to be replaced.
func (o *submitOptions) add(ctx context.Context, st *store.Store, subs []store.Submission) ([]store.Receipt, error) {
	if len(o.replaces) == 0 {
		return st.SubmitAll(ctx, subs)
	}
	var old []store.ID
	for _, word := range o.replaces {
		id, err := st.Find(ctx, strings.ToLower(word))
		if err != nil {
			return nil, err
		}
		old = append(old, id)
	}
	var r store.Receipt
	err := st.WithAudit(ctx, func(in *store.Store) (e store.AuditEntry, err error) {
		if r, err = in.Override(ctx, old, subs[0]); err != nil {
			return e, err
		}
		e = store.AuditEntry{Actor: actor(), Action: "override", Target: old[0].String()}
		e.Detail, err = json.Marshal(map[string]any{"by": r.ID, "tasks": old, "source": shownSource(subs[0].Source)})
		return e, err
	})
	return []store.Receipt{r}, err
}

func (o *submitOptions) submissions(args []string) ([]store.Submission, error) {
	if o.requestID != "" && len(args) > 1 {
		return nil, usererr.Usagef("--request-id names one task, but there are %d sources", len(args))
	}
	if len(o.replaces) > 0 && len(args) > 1 {
		return nil, usererr.Usagef("--replaces puts one task in the place of others, but there are %d sources", len(args))
	}
	params, err := parseParams(o.params)
	if err != nil {
		return nil, err
	}
	notBefore, err := parseTime(o.notBefore, time.Now())
	if err != nil {
		return nil, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find working directory: %w", err)
	}
	var subs []store.Submission
	for _, arg := range args {
		source, err := sourceOf(arg, dir)
		if err != nil {
			return nil, err
		}
		subs = append(subs, store.Submission{
			Source: source, Params: params, Priority: o.priority, RequestID: o.requestID, UserID: o.user, NotBefore: notBefore,
		})
	}
	return subs, nil
}

// warnMissing warns of files that are not here. They may be where the daemon
// is.
func (c *cli) warnMissing(subs []store.Submission) {
	for _, s := range subs {
		if s.Source[0] != '/' {
			continue
		}
		if _, err := os.Stat(s.Source); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(c.err, "cuelight: warning: %s is not on this machine\n", usererr.Printable(s.Source))
		}
	}
}

// warnUnattended warns when nobody is there who would take the tasks. That they
// were submitted stays true whatever becomes of the question, so its errors do
// not count.
func (c *cli) warnUnattended(ctx context.Context, st *store.Store) {
	workers, err := st.Workers(ctx, false)
	if err != nil || slices.ContainsFunc(workers, takesAny) {
		return
	}
	fmt.Fprintln(c.err, "cuelight: nobody works on this database now: cuelight serve")
}

// takesAny reports whether a worker is there and takes any task. What does not
// say otherwise does.
func takesAny(w store.Worker) bool {
	var who identity
	_ = json.Unmarshal(w.Capabilities, &who)
	return w.HeartbeatAge <= silentAfter && !who.Some
}

// waitFor reports on tasks as they end.
func (c *cli) waitFor(ctx context.Context, db *dbconn.Database, args []string, receipts []store.Receipt) error {
	published, err := c.PublishPath()
	if err != nil {
		return err
	}
	open := make(map[int]bool) // by the place in args
	for i := range receipts {
		open[i] = true
	}
	completed := 0
	for {
		for i := range receipts {
			if !open[i] {
				continue
			}
			r, ended, err := reportIfEnded(ctx, db.Store, receipts[i].ID, args[i], published)
			if err == nil && ended {
				delete(open, i)
				err = c.writeEnded(r)
			}
			if err != nil {
				return err
			}
			if r.Published != nil {
				completed++
			}
		}
		if len(open) == 0 {
			return verdict(completed, len(receipts))
		}
		if err := pause(ctx, lookEvery); err != nil {
			return err
		}
	}
}

func reportIfEnded(ctx context.Context, st *store.Store, id store.ID, source, publishDir string) (taskReport, bool, error) {
	t, err := st.Get(ctx, id)
	if err != nil || !t.IsFinished(st.Graph()) {
		return taskReport{}, false, err
	}
	r, err := reportOn(ctx, st, t, source, publishDir)
	return r, err == nil, err
}

// verdict is the exit code for so many of all tasks that were completed.
func verdict(completed, all int) error {
	switch completed {
	case all:
		return nil
	case 0:
		return quiet(exitFailure)
	}
	return quiet(exitPartial)
}

func (c *cli) writeEnded(r taskReport) error {
	if c.json {
		return c.writeJSON(r)
	}
	if r.Published != nil {
		_, err := fmt.Fprintln(c.out, *r.Published)
		return err
	}
	why := string(r.Status)
	if r.Error != nil {
		why = usererr.FirstLine(*r.Error)
	}
	_, err := fmt.Fprintf(c.err, "%s: %s\n", labelOf(r.Source), why)
	return err
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
