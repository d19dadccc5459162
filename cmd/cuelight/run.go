package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/media/sandbox"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const runHelp = `Run publishes the given files and addresses, and ends when that is done.

It submits them as tasks, works on these tasks alone until each is published, dead
or cancelled, and prints where each published video lies. Other tasks that wait in
the database are left to cuelight serve. A file that is given twice is worked on
once and reported twice.

Its tasks have the priority 1, before the usual 0, because somebody waits.

The first Ctrl-C lets running stages finish, for as long as --grace; the second
stops at once. What is not finished stays in the database with the priority 0:
cuelight serve goes on with it.

With --json, standard output has one object per task when it ends, in the order
in which they end, and nothing else:

  {"task_id","source","status","published","error","stages":{"ingest":{"status","attempts","duration_ms","error"},...}}

status is completed, dead or cancelled; published is the path of master.m3u8,
or null; error is null, or what the stage that died had to say; duration_ms is
the time of all attempts together. The exit code is 0 when all were completed,
3 when some were, and 1 when none was.`

func (c *cli) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run FILE|URL...",
		Short: "Publish files or addresses, and end",
		Long:  runHelp,
		Args:  atLeastOne("FILE or URL"),
	}
	o := c.workFlags(cmd)
	c.jsonFlag(cmd)
	quietly := cmd.Flags().BoolP("quiet", "q", false, "no progress, only what goes wrong")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.where = whereFlags(cmd.Flags())
		return c.runTasks(cmd.Context(), args, o, *quietly)
	}
	return cmd
}

// atLeastOne is cobra.MinimumNArgs in words.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return &usererr.Error{Kind: usererr.Usage, Text: cmd.CommandPath() + " needs at least one " + what, Hint: "usage: " + cmd.UseLine()}
		}
		return nil
	}
}

func (c *cli) runTasks(ctx context.Context, args []string, o *workOptions, quietly bool) error {
	given, err := collectSources(args)
	if err != nil {
		return err
	}
	config, err := c.prepare(o)
	if err != nil {
		return err
	}
	db, err := c.Open(ctx)
	if err != nil {
		return err
	}
	err = c.runOn(ctx, db, given, config, o, quietly)
	return errors.Join(err, db.Close())
}

// prepare checks what the work needs before anything is begun, and makes the
// directories last.
func (c *cli) prepare(o *workOptions) (video.Config, error) {
	data, published, err := c.Directories()
	if err != nil {
		return video.Config{}, err
	}
	config, err := o.config(data, published)
	if err != nil {
		return config, err
	}
	if err := o.checkTools(); err != nil {
		return config, err
	}
	if config.Tools.Sandbox != media.SandboxOff {
		if err := sandbox.HideProcess(); err != nil {
			return config, fmt.Errorf("keep other processes from reading this one: %w", err)
		}
	}
	return config, dbconn.MakeDirectories(data, published)
}

func (c *cli) runOn(ctx context.Context, db *dbconn.Database, given []*given, config video.Config, o *workOptions, quietly bool) error {
	mine, err := identify(config)
	if err != nil {
		return err
	}
	if err := mine.agrees(ctx, db.Store, true); err != nil {
		return err
	}
	tracer, stop := c.startTracing(ctx)
	defer stop()
	traceparent, done := c.submitting(ctx, tracer)
	err = submitGiven(ctx, db.Store, given, traceparent)
	done(err)
	if err != nil {
		return err
	}
	// What others submitted is left to a daemon: it has more patience with
	// failures, and is still there when this command has what it wants.
	var only []store.ID
	for _, g := range given {
		only = append(only, g.task)
	}
	j := newOneShot(c, db, given, config.PublishDir, quietly)
	return j.run(ctx, &engine{db: db, stages: tracer.Stages(inHaste(pipelineStages(config))), grace: o.grace, lease: o.lease, only: only, mine: mine, keep: db.Source.EventRetention()})
}

// given is a source as it was given, once or several times, and its task.
type given struct {
	source string   // as it is submitted
	words  []string // as it was given
	label  string   // for people

	task store.ID
	told bool // somebody was told why it died
	done bool
}

func collectSources(args []string) ([]*given, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find working directory: %w", err)
	}
	var all []*given
	bySource := make(map[string]*given)
	for _, arg := range args {
		source, err := sourceOf(arg, dir)
		if err != nil {
			return nil, err
		}
		g := bySource[source]
		if g == nil {
			g = &given{source: source, label: labelOf(arg)}
			bySource[source] = g
			all = append(all, g)
		}
		g.words = append(g.words, arg)
	}
	return all, nil
}

// awaited is the priority of tasks that somebody waits for: above the usual 0,
// so that a daemon on the same database takes them first.
const awaited = 1

func submitGiven(ctx context.Context, st *store.Store, all []*given, traceparent string) error {
	var subs []store.Submission
	for _, g := range all {
		subs = append(subs, store.Submission{Source: g.source, Priority: awaited, Traceparent: traceparent})
	}
	receipts, err := st.SubmitAll(ctx, subs)
	if err != nil {
		return err
	}
	for i, r := range receipts {
		all[i].task = r.ID
	}
	return nil
}
