package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const moveHelp = `Move brings the results of all tasks, the published videos, or both from a directory
to a bucket, back, or from a bucket to another one of the same service:

  cuelight move --to-data-dir s3://videos/data --to-publish-dir s3://published

--data-dir and --publish-dir are the old locations. The old locations keep everything, and
serve it, until --remove. What is copied is compared by SHA-256 (from bucket to bucket by
size, because the service copies), and the stable address of a video in the new location
is created last, so players get a whole video from either location at every moment.

No worker may be alive: move refuses to begin, and workers refuse to start with the
old locations from then on. To keep that time short, copy before, while they work:

  1. cuelight move … --copy-only     may be repeated, and run next to cuelight serve
  2. stop all workers
  3. cuelight move …                 copies what is new since
  4. start the workers with the new locations; the last line has their flags
  5. let the web server, or the CDN, use the new location
  6. cuelight move … --remove        deletes from the old locations what the new ones have

A move that was stopped or killed in any step is continued by the same command. To undo
one, move in the other direction. Received sources that are stored in a bucket are moved
in step 3. Files of this host stay there: uploads that have not been ingested, the
secrets of the dashboard and a private database. With a bucket for data, --local-dir
names their directory.

It prints a line per task, and every ten seconds how far a long copy is. The exit code
is 0 if everything is there, 3 if some tasks could not be copied or removed, and 1 if
none could.`

type moveOptions struct {
	toData, toPublish        string
	copyOnly, remove, dryRun bool
	reserve                  byteSize
}

func (c *cli) moveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move",
		Short: "Move results and published videos to a bucket, or back",
		Long:  moveHelp,
		Args:  noArguments,
	}
	o, f := &moveOptions{reserve: 1 << 30}, cmd.Flags()
	c.publishDirFlag(f)
	f.StringVar(&o.toData, "to-data-dir", "", "new location of sources and results, a directory or s3://BUCKET/PREFIX; default: they stay")
	f.StringVar(&o.toPublish, "to-publish-dir", "", "new location of published videos, a directory or s3://BUCKET/PREFIX; default: they stay")
	f.BoolVar(&o.copyOnly, "copy-only", false, "copy what the new locations do not have; workers may use the old ones meanwhile")
	f.BoolVar(&o.remove, "remove", false, "at the end, delete from the old locations what was moved")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be copied, and change nothing")
	f.Var(&o.reserve, "reserve", "disk space to keep free where a directory is moved to; 0 for none")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.move(cmd.Context(), o) }
	return cmd
}

func (c *cli) move(ctx context.Context, o *moveOptions) error {
	switch {
	case o.toData == "" && o.toPublish == "":
		return usererr.Usagef("--to-data-dir, --to-publish-dir or both are needed")
	case o.copyOnly && o.remove:
		return usererr.Usagef("--copy-only cannot be combined with --remove")
	}
	m, err := c.newMove(o)
	if err != nil {
		return err
	}
	complete, err := m.IsComplete(ctx)
	if err != nil {
		return usererr.Usagef("%s", usererr.FirstLine(err.Error()))
	}
	return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
		var err error
		switch {
		case complete:
			fmt.Fprintln(c.err, "cuelight: everything was moved before")
			err = recordMove(ctx, db.Store, m) // the command may have been killed before
		case o.copyOnly || o.dryRun:
			err = c.copyTasks(ctx, m, func(context.Context, store.ID) error { return nil })
			if err == nil && !o.copyOnly {
				err = c.copySources(ctx, m)
			}
			return err
		default:
			err = c.moveAll(ctx, db.Store, m, o)
		}
		if err == nil && o.remove && !o.dryRun {
			err = c.removeMoved(ctx, m)
		}
		return err
	})
}

// newMove opens the locations. Unless it is a dry run, it creates a directory to move to.
func (c *cli) newMove(o *moveOptions) (*video.Move, error) {
	from, to := c.Options, dbconn.Options{Env: c.Env, DataDir: o.toData, PublishDir: o.toPublish}
	m := &video.Move{DryRun: o.dryRun, Reserve: cmp.Or(int64(o.reserve), -1)}
	fromData, fromPublish := from.Buckets()
	toData, toPublish := to.Buckets()
	var errs [4]error
	if o.toData != "" {
		m.Data.From, errs[0] = c.openLocation(fromData, from.DataPath)
		m.Data.To, errs[1] = c.openLocation(toData, to.DataPath)
	}
	if o.toPublish != "" {
		m.Published.From, errs[2] = c.openLocation(fromPublish, from.PublishPath)
		m.Published.To, errs[3] = c.openLocation(toPublish, to.PublishPath)
	}
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	if err := m.Check(); err != nil {
		return nil, usererr.Usagef("%s", usererr.FirstLine(err.Error()))
	}
	if err := c.checkPrivateDatabase(m.Data.To); err != nil {
		return nil, err
	}
	for kind, location := range map[string]video.Location{"data": m.Data.To, "publish": m.Published.To} {
		if location.Dir != "" && !o.dryRun {
			if err := dbconn.MakeWritable(kind, location.Dir); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// checkPrivateDatabase returns an error if commands would not find the private database after a move of the data: it
// is in the data directory, or in the local directory if the data are in a bucket.
func (c *cli) checkPrivateDatabase(toData video.Location) error {
	local, err := c.DataPath()
	if err != nil || toData.Dir == "" || toData.Dir == local || !c.Target().Private {
		return err
	}
	return &usererr.Error{
		Kind: usererr.Usage,
		Text: fmt.Sprintf("the private database is in %s; with the data in %s, cuelight would not find it",
			usererr.Printable(local), usererr.Printable(toData.Dir)),
		Hint: "use --to-data-dir " + console.ShellQuote(local) + ", or a database of your own with --database-url",
	}
}

func (c *cli) openLocation(address string, path func() (string, error)) (p video.Location, err error) {
	if address != "" {
		p.Bucket, err = c.openBucket(address)
		return p, err
	}
	p.Dir, err = path()
	return p, err
}

// moveAll does the whole move while no worker is alive.
func (c *cli) moveAll(ctx context.Context, st *store.Store, m *video.Move, o *moveOptions) error {
	if err := daemon.CheckNoWorkers(ctx, st); err != nil {
		return err
	}
	if err := m.Begin(ctx); err != nil {
		return err
	}
	// One that registered before the locations were marked may end its work while they are copied.
	if err := daemon.CheckNoWorkers(ctx, st); err != nil {
		return err
	}
	err := c.copyTasks(ctx, m, func(ctx context.Context, task store.ID) error {
		if m.Published == (video.Route{}) {
			return nil
		}
		return c.recordMoved(ctx, st, m, task)
	})
	if err == nil {
		err = c.copySources(ctx, m)
	}
	if err != nil {
		return err
	}
	// One that was starting at the first check may have used the old locations.
	if err := daemon.CheckNoWorkers(ctx, st); err != nil {
		return err
	}
	if err := m.Finish(ctx); err != nil {
		return err
	}
	if err := recordMove(ctx, st, m); err != nil {
		return err
	}
	fmt.Fprintf(c.err, "cuelight: moved; start workers with %s\n", c.flagsAfter(m, o))
	return nil
}

// recordMove makes the database expect the content in the new locations.
func recordMove(ctx context.Context, st *store.Store, m *video.Move) error {
	for kind, route := range m.Routes() {
		if err := daemon.RecordMove(ctx, st, kind, route); err != nil {
			return err
		}
	}
	return nil
}

// recordMoved records where the published video of a task is now. One that workers with another
// --publish-dir have published stays where it is.
func (c *cli) recordMoved(ctx context.Context, st *store.Store, m *video.Move, task store.ID) error {
	served, err := m.IsServed(ctx, task)
	if err != nil {
		return err
	}
	if served {
		return daemon.RecordPublishDir(ctx, st, task, m.Published.To.String())
	}
	dir, err := daemon.RecordedPublishDir(ctx, st, task)
	if err == nil && dir != "" && dir != m.Published.To.String() {
		fmt.Fprintf(c.err, "cuelight: %s: its published video is not in %s and was not moved; it was published in %s\n",
			task, m.Published.From, usererr.Printable(dir))
	}
	return err
}

// copySources copies the sources that hosts have received and no task has ingested yet.
func (c *cli) copySources(ctx context.Context, m *video.Move) error {
	done, err := m.CopySources(ctx)
	if err == nil && done.Copied+done.Present > 0 {
		fmt.Fprintf(c.err, "cuelight: %d of %s copied, %s\n",
			done.Copied, console.Plural(done.Copied+done.Present, "stored source"), console.Size(done.Bytes))
	}
	return err
}

// flagsAfter returns the flags of workers that use the new locations.
func (c *cli) flagsAfter(m *video.Move, o *moveOptions) string {
	data, published := c.Buckets()
	local, publishDir, _ := c.Directories() // they were read before
	data, published = cmp.Or(data, local), cmp.Or(published, publishDir)
	// An address is printed with its options, as it was given.
	if m.Data != (video.Route{}) {
		data = cmp.Or(m.Data.To.Dir, o.toData)
	}
	if m.Published != (video.Route{}) {
		published = cmp.Or(m.Published.To.Dir, o.toPublish)
	}
	flags := []string{"--data-dir", console.ShellQuote(data), "--publish-dir", console.ShellQuote(published)}
	if video.IsBucketAddress(data) {
		flags = append(flags, "--local-dir", console.ShellQuote(local))
	}
	return strings.Join(flags, " ")
}

// removeMoved deletes from the old locations what was moved.
func (c *cli) removeMoved(ctx context.Context, m *video.Move) error {
	if err := m.RemoveSources(ctx); err != nil {
		return err
	}
	tasks, err := m.Tasks(ctx)
	if err != nil {
		return err
	}
	failed := 0
	for _, task := range tasks {
		err := m.Remove(ctx, task)
		_, isService := errors.AsType[*storage.ServiceError](err)
		if err != nil && (isService || ctx.Err() != nil) {
			return fmt.Errorf("%s: %w", task, err)
		}
		if err != nil {
			failed++
			fmt.Fprintf(c.err, "cuelight: %s: %s\n", task, strings.ReplaceAll(err.Error(), "\n", "; "))
		}
	}
	fmt.Fprintf(c.err, "cuelight: %s removed from the old locations\n", console.Plural(len(tasks)-failed, "task"))
	return exitStatusFor(len(tasks)-failed, len(tasks))
}
