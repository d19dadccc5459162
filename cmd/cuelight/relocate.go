package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const relocateHelp = `Relocate records that the results of all tasks, the published videos, or both are in
another directory or bucket, to which you have copied them with cp, rclone or the like:

  1. copy everything, also while workers work
  2. stop all workers
  3. copy again what is new since
  4. cuelight relocate --to-data-dir s3://videos/data --to-publish-dir s3://published
  5. start the workers with the new locations; the last line has their flags
  6. let the web server, or the CDN, use the new location, and delete the old one

--data-dir and --publish-dir are the old locations, which must still be there. Relocate
compares every file with its copy by name and size, and records nothing if one is missing
or different, or if a worker may be alive. In a bucket it adds the lists of files, for
which it reads the old directory. It changes nothing in the old locations, but daemons
refuse to start with them from then on. After an error it can be repeated.

docs/storage.md has the commands of a copy for each kind of location.

The exit code is 0 if the new locations are recorded, and 1 if something is missing.`

type relocateOptions struct {
	toData, toPublish string
	dryRun            bool
}

func (c *cli) relocateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "relocate",
		Short: "Record that results or published videos were copied elsewhere",
		Long:  relocateHelp,
		Args:  noArguments,
	}
	o, f := &relocateOptions{}, cmd.Flags()
	c.publishDirFlag(f)
	f.StringVar(&o.toData, "to-data-dir", "", "new location of sources and results, a directory or s3://BUCKET/PREFIX; default: they stay")
	f.StringVar(&o.toPublish, "to-publish-dir", "", "new location of published videos, a directory or s3://BUCKET/PREFIX; default: they stay")
	f.BoolVar(&o.dryRun, "dry-run", false, "compare, and record nothing; workers may be alive")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.relocate(cmd.Context(), o) }
	return cmd
}

func (c *cli) relocate(ctx context.Context, o *relocateOptions) error {
	if o.toData == "" && o.toPublish == "" {
		return usererr.Usagef("--to-data-dir, --to-publish-dir or both are needed")
	}
	r, err := c.newRelocation(o)
	if err != nil {
		return err
	}
	return c.withExistingDatabase(ctx, func(db *dbconn.Database) error {
		for kind, route := range r {
			if err := daemon.CheckLocation(ctx, db.Store, kind, route.From); err != nil {
				return err
			}
		}
		if !o.dryRun {
			if err := daemon.CheckNoWorkers(ctx, db.Store); err != nil {
				return err
			}
		}
		found, err := r.Verify(ctx)
		if err != nil {
			return err
		}
		if err := c.reportDifferences(found); err != nil || o.dryRun {
			return err
		}
		return c.recordRelocation(ctx, db.Store, r, found, o)
	})
}

func (c *cli) recordRelocation(ctx context.Context, st *store.Store, r video.Relocation, found video.Relocated, o *relocateOptions) error {
	if err := r.Adopt(ctx); err != nil {
		return err
	}
	// One that was starting at the first check may have used the old locations.
	if err := daemon.CheckNoWorkers(ctx, st); err != nil {
		return err
	}
	if err := daemon.Relocate(ctx, st, r, found.Published); err != nil {
		return err
	}
	fmt.Fprintf(c.err, "cuelight: recorded; start workers with %s\n", c.flagsAfter(r, o))
	return nil
}

// maxDifferences is how many differences are printed.
const maxDifferences = 10

// reportDifferences prints what Verify has found. It returns an error if the copies are not complete.
func (c *cli) reportDifferences(found video.Relocated) error {
	fmt.Fprintf(c.err, "cuelight: compared %s, %s\n", console.Plural(found.Results, "result"), console.Size(found.Bytes))
	if len(found.Differences) == 0 {
		return nil
	}
	slices.Sort(found.Differences)
	for _, difference := range found.Differences[:min(len(found.Differences), maxDifferences)] {
		fmt.Fprintf(c.err, "cuelight: %s\n", usererr.Printable(difference))
	}
	return &usererr.Error{
		Text: console.Plural(len(found.Differences), "difference") + "; nothing was recorded",
		Hint: "repeat the copy, then this command",
	}
}

// newRelocation opens the locations.
func (c *cli) newRelocation(o *relocateOptions) (video.Relocation, error) {
	to := dbconn.Options{Env: c.Env, DataDir: o.toData, PublishDir: o.toPublish}
	fromData, fromPublish := c.Buckets()
	toData, toPublish := to.Buckets()
	r := make(video.Relocation)
	for _, l := range []struct {
		kind               video.ContentKind
		to                 string
		fromBucket, bucket string
		fromPath, path     func() (string, error)
	}{
		{video.DataContent, o.toData, fromData, toData, c.DataPath, to.DataPath},
		{video.PublishContent, o.toPublish, fromPublish, toPublish, c.PublishPath, to.PublishPath},
	} {
		if l.to == "" {
			continue
		}
		from, err := c.openLocation(l.fromBucket, l.fromPath)
		if err != nil {
			return nil, err
		}
		to, err := c.openLocation(l.bucket, l.path)
		if err != nil {
			return nil, err
		}
		r[l.kind] = video.Route{From: from, To: to}
	}
	if err := r.Check(); err != nil {
		return nil, usererr.Usagef("%s", usererr.FirstLine(err.Error()))
	}
	return r, c.checkPrivateDatabase(r[video.DataContent].To)
}

// checkPrivateDatabase returns an error if commands would not find the private database with the data in the new location:
// it is in the data directory, or in the local directory if the data are in a bucket.
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

// flagsAfter returns the flags of workers that use the new locations.
func (c *cli) flagsAfter(r video.Relocation, o *relocateOptions) string {
	data, published := c.Buckets()
	local, publishDir, _ := c.Directories() // they were read before
	data, published = cmp.Or(data, local), cmp.Or(published, publishDir)
	// An address is printed with its options, as it was given.
	if route, ok := r[video.DataContent]; ok {
		data = cmp.Or(route.To.Dir, o.toData)
	}
	if route, ok := r[video.PublishContent]; ok {
		published = cmp.Or(route.To.Dir, o.toPublish)
	}
	flags := []string{"--data-dir", console.ShellQuote(data), "--publish-dir", console.ShellQuote(published)}
	if video.IsBucketAddress(data) {
		flags = append(flags, "--local-dir", console.ShellQuote(local))
	}
	return strings.Join(flags, " ")
}
