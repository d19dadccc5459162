package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/media/sandbox"
	"github.com/cuelight/cuelight/internal/profiles"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const runHelp = `Run publishes the given files and URLs, and exits.

It submits them as tasks, works on these tasks alone until each is published, dead
or cancelled, and prints the paths of the published videos. It leaves other tasks in
the database to cuelight serve. A file that is given twice is processed once and
reported twice.

Its tasks have the priority 1, before the default 0, because a user waits for them.

The first Ctrl-C lets running stages finish, for as long as --grace; the second one
stops at once. Tasks that are not finished stay in the database with the priority 0,
for cuelight serve.

With --json, standard output has one object per task when it ends, in the order in
which they end, and nothing else:

  {"task_id","source","status","published","error",
   "stages":{"ingest":{"status","attempts","duration_ms","error"},...}}

status is completed, dead or cancelled; published is the path of master.m3u8, or
null; error is null or the error of the dead stage; duration_ms is the time of all
attempts together. The exit code is 0 if all tasks were completed, 3 if some were,
and 1 if none was.`

func (c *cli) runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run FILE|URL...",
		Short: "Publish files or URLs, and exit",
		Long:  runHelp,
		Args:  atLeastOne("FILE or URL"),
	}
	o := c.workFlags(cmd)
	var settings videoFlags
	settings.add(cmd.Flags())
	var withCaptions captionsFlag
	withCaptions.add(cmd.Flags())
	c.jsonFlag(cmd)
	quiet := cmd.Flags().BoolP("quiet", "q", false, "print errors only, no progress")
	cmd.PreRunE = func(*cobra.Command, []string) error { return errors.Join(checkRun(o), c.CheckAddresses()) }
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.locationFlags = locationFlags(cmd.Flags())
		return c.runTasks(cmd.Context(), args, o, settings, withCaptions, *quiet)
	}
	return cmd
}

func checkRun(o *workOptions) error {
	err := o.checkConfig()
	for stage, n := range o.slots {
		if n == 0 {
			return errors.Join(err, usererr.Usagef("--slots %s=0: nobody else works on the tasks of this command; it must be 1 to 1000",
				usererr.Printable(stage)))
		}
	}
	return err
}

func (c *cli) runTasks(
	ctx context.Context, args []string, o *workOptions, settings videoFlags, withCaptions captionsFlag, quiet bool,
) error {
	inputs, err := collectSources(args)
	if err != nil {
		return err
	}
	files, err := withCaptions.read(args)
	if err != nil {
		return err
	}
	params, err := settings.addTo(json.RawMessage("{}"))
	if err != nil {
		return err
	}
	config, err := c.prepareWork(o)
	if err != nil {
		return err
	}
	return c.withDatabase(ctx, func(db *dbconn.Database) error {
		return c.runOn(ctx, db, inputs, params, files, config, o, quiet)
	})
}

// prepareWork checks everything that the work needs, and creates the directories last.
func (c *cli) prepareWork(o *workOptions) (video.Config, error) {
	data, published, err := c.Directories()
	if err != nil {
		return video.Config{}, err
	}
	config, err := o.config(data, published)
	if err != nil {
		return config, err
	}
	if err := o.prepareTools(config); err != nil {
		return config, err
	}
	if err := c.openBuckets(&config); err != nil {
		return config, err
	}
	if err := o.encryption.set(&config); err != nil {
		return config, err
	}
	return config, dbconn.MakeDirectories(data, published)
}

// openBuckets opens the buckets that take the place of directories.
func (c *cli) openBuckets(config *video.Config) error {
	data, published := c.Buckets()
	for address, bucket := range map[string]**video.Bucket{data: &config.Bucket, published: &config.PublishBucket} {
		opened, err := c.openBucket(address)
		if err != nil {
			return err
		}
		*bucket = opened
	}
	return nil
}

// dataBucket opens the bucket that takes the place of the data directory; nil if none does.
func (c *cli) dataBucket() (*video.Bucket, error) {
	data, _ := c.Buckets()
	return c.openBucket(data)
}

// openBucket returns nil without an address.
func (c *cli) openBucket(address string) (*video.Bucket, error) {
	if address == "" {
		return nil, nil
	}
	b, err := video.OpenBucket(address, c.Env.Get)
	if err != nil {
		return nil, usererr.Usagef("%s: %s", usererr.Printable(redact.Source(address)), usererr.FirstLine(err.Error()))
	}
	return b, nil
}

// prepareTools checks ffmpeg, and protects this process from it.
func (o *workOptions) prepareTools(config video.Config) error {
	if err := o.checkTools(); err != nil {
		return err
	}
	if config.Tools.Sandbox == media.SandboxOff {
		return nil
	}
	if err := sandbox.HideProcess(); err != nil {
		return fmt.Errorf("protect this process from being read by others: %w", err)
	}
	return nil
}

func (c *cli) runOn(
	ctx context.Context, db *dbconn.Database, inputs []*input, params json.RawMessage, files []captionsFile,
	config video.Config, o *workOptions, quiet bool,
) error {
	engine, err := daemon.NewOneShotEngine(ctx, db, config)
	if err != nil {
		return err
	}
	tracer, flush := c.startTracing(ctx)
	defer flush()
	traceparent, done := c.traceSubmission(ctx, tracer)
	tasks, err := submitInputs(ctx, db.Store, config.Bucket, inputs, params, traceparent)
	done(err)
	if err == nil {
		err = attachAll(ctx, c.actions(db), files, store.Receipt{ID: inputs[0].task})
	}
	if err != nil {
		return err
	}
	// Other tasks are left to a daemon: it retries for longer, and still runs when this
	// command has ended.
	engine.OnlyTasks, engine.Stages = tasks, tracer.Stages(engine.Stages)
	engine.Grace, engine.Lease, engine.Name, engine.Version = o.grace, o.lease, o.name, programVersion()
	return newOneShot(c, db, inputs, quiet).run(ctx, engine)
}

// input is a source that was given, once or several times, and its task.
type input struct {
	source string   // as it is submitted
	args   []string // as it was given
	label  string   // for display

	task    store.ID
	printed bool // why it died was printed
	done    bool
}

func collectSources(args []string) ([]*input, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find working directory: %w", err)
	}
	var all []*input
	bySource := make(map[string]*input)
	for _, arg := range args {
		source, err := sourceOf(arg, dir)
		if err != nil {
			return nil, err
		}
		in := bySource[source]
		if in == nil {
			in = &input{source: source, label: labelOf(arg)}
			bySource[source] = in
			all = append(all, in)
		}
		in.args = append(in.args, arg)
	}
	return all, nil
}

// runPriority is the priority of tasks that a user waits for: above the default, so that
// a daemon on the same database takes them first.
const runPriority = 1

func submitInputs(
	ctx context.Context, st *store.Store, bucket *video.Bucket, all []*input, params json.RawMessage, traceparent string,
) (tasks []store.ID, err error) {
	var subs []store.Submission
	for _, in := range all {
		subs = append(subs, store.Submission{Source: in.source, Params: params, Priority: runPriority, Traceparent: traceparent})
	}
	if err := profiles.Prepare(ctx, st, subs); err != nil {
		return nil, err
	}
	for i := range subs {
		if err := daemon.StoreSource(ctx, st, bucket, &subs[i]); err != nil {
			return nil, err
		}
	}
	receipts, err := st.SubmitAll(ctx, subs)
	for i, r := range receipts {
		all[i].task = r.ID
		tasks = append(tasks, r.ID)
	}
	return tasks, err
}
