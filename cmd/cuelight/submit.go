package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/store"
)

type submitOptions struct {
	params, requestID, user, notBefore string
	priority                           int16
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
	f.StringVar(&o.requestID, "request-id", "", "submitting again with the same id changes nothing and prints the first task")
	f.StringVar(&o.user, "user", "", "whose task it is")
	f.StringVar(&o.notBefore, "not-before", "", "do not start earlier: a time such as 2030-01-31T08:00:00Z, or a pause such as 90m")
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
	return c.withDatabase(ctx, func(db *database) error {
		receipts, err := db.store.SubmitAll(ctx, subs)
		if err != nil {
			return err
		}
		if o.wait {
			return c.waitFor(ctx, db, args, receipts)
		}
		for i, r := range receipts {
			if c.json {
				err = c.writeJSON(struct {
					TaskID  store.ID `json:"task_id"`
					Source  string   `json:"source"`
					Existed bool     `json:"existed"`
				}{r.ID, args[i], r.Existed})
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

func (o *submitOptions) submissions(args []string) ([]store.Submission, error) {
	if o.requestID != "" && len(args) > 1 {
		return nil, usagef("--request-id names one task, but there are %d sources", len(args))
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

// parseParams points at the place where JSON goes wrong, which the database
// would not.
func parseParams(text string) (json.RawMessage, error) {
	var object map[string]json.RawMessage
	err := json.Unmarshal([]byte(text), &object)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		at := min(int(syntax.Offset), len(text))
		return nil, &problem{
			code: exitUsage,
			text: fmt.Sprintf("--params is not JSON: %s, at character %d", syntax, at),
			hint: "it is an object, such as '{\"title\": \"Holiday\"}'",
		}
	case err != nil, object == nil:
		return nil, &problem{code: exitUsage, text: "--params is not a JSON object", hint: "such as '{\"title\": \"Holiday\"}'"}
	case bytes.Contains([]byte(text), []byte(`\u0000`)):
		return nil, usagef("--params holds \\u0000, which PostgreSQL cannot store")
	}
	return json.RawMessage(text), nil
}

func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usagef("--not-before %s: it is a time such as 2030-01-31T08:00:00Z, or a pause such as 90m", printable(text))
}

// warnMissing warns of files that are not here. They may be where the daemon
// is.
func (c *cli) warnMissing(subs []store.Submission) {
	for _, s := range subs {
		if s.Source[0] != '/' {
			continue
		}
		if _, err := os.Stat(s.Source); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(c.err, "cuelight: warning: %s is not on this machine\n", printable(s.Source))
		}
	}
}

// waitFor reports on tasks as they end.
func (c *cli) waitFor(ctx context.Context, db *database, args []string, receipts []store.Receipt) error {
	published, err := c.published()
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
			r, ended, err := reportIfEnded(ctx, db.store, receipts[i].ID, args[i], published)
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

func reportIfEnded(ctx context.Context, st *store.Store, id store.ID, source, publishDir string) (report, bool, error) {
	t, err := st.Get(ctx, id)
	if err != nil || !t.Settled(st.Graph()) {
		return report{}, false, err
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

func (c *cli) writeEnded(r report) error {
	if c.json {
		return c.writeJSON(r)
	}
	if r.Published != nil {
		_, err := fmt.Fprintln(c.out, *r.Published)
		return err
	}
	why := string(r.Status)
	if r.Error != nil {
		why = firstLine(*r.Error)
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
