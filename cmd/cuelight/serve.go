package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/inbox"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
)

const serveHelp = `Serve works on tasks as they come, until it is stopped. Any number of daemons may
work on one database.

With --watch it also submits the files that are dropped into a directory, at any
depth, once they have stopped growing, and each of them once: a file is known by
its path, size and modification time, also after a restart and on other hosts.
Hidden files, empty ones, names such as *.part, *.tmp and *.crdownload, and what is
no video by its name, such as *.txt, *.srt or *.jpg, are passed over. To upload
as *.part and rename when all is there is surest, since an upload may stand still
for longer than --settle. Files are never moved or deleted.

SIGTERM or Ctrl-C once: it takes on nothing more, lets running stages finish for
as long as --grace, gives back what is left, and exits with 0. A second time: it
stops at once, gives back all it holds, and exits with 143 or 130.

It waits for a database that is away, also at the start. It does not change the
tables of a database that is not private: see cuelight migrate.

With --listen it serves a dashboard, an HTTP API (described at /openapi.json), the
events as they happen and metrics for Prometheus at that address. Who may do what
say two secrets, in files that the first start makes, and keys (cuelight keys).

Logs go to standard error: JSON, or plain lines on a terminal. Under systemd, a
unit may have Type=notify and WatchdogSec.`

type serveOptions struct {
	*workOptions
	watch    []string
	settle   time.Duration
	ageAfter time.Duration
	front    *frontOptions
}

func (c *cli) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Work on tasks as they come, as a daemon",
		Long:  serveHelp,
		Args:  noArguments,
	}
	o := &serveOptions{workOptions: c.workFlags(cmd)}
	f := cmd.Flags()
	f.StringArrayVar(&o.watch, "watch", nil, "submit the files dropped into this directory; repeatable, in the variable separated by \":\"")
	f.DurationVar(&o.settle, "settle", 10*time.Second, "how long a dropped file must have stayed as it is")
	f.DurationVar(&o.ageAfter, "age-after", 0, "how long a task may wait for a stage behind others of higher priority before it goes first; 0 for ever")
	setting(f, "watch", "settle", "age-after")
	o.front = frontFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.serve(cmd.Context(), o) }
	return cmd
}

func (c *cli) serve(ctx context.Context, o *serveOptions) error {
	d, err := c.newDaemon(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(d.run(ctx), d.close())
}

// newDaemon listens already, where it is to; it works when it is run.
func (c *cli) newDaemon(ctx context.Context, o *serveOptions) (*daemon, error) {
	boxes, err := o.inboxes()
	if err != nil {
		return nil, err
	}
	if err := o.front.check(); err != nil {
		return nil, err
	}
	if o.ageAfter < 0 {
		return nil, usererr.Usagef("--age-after %s: it must not be negative; 0 lets tasks of lower priority wait for ever", o.ageAfter)
	}
	config, err := c.prepare(o.workOptions)
	if err != nil {
		return nil, err
	}
	mine, err := identify(config)
	if err != nil {
		return nil, err
	}
	// A watched directory may well hold the data directory; what the work makes
	// there is not to be worked on.
	boxes.Skip = []string{filepath.Join(config.DataDir, "tasks"), filepath.Join(config.DataDir, dbconn.PrivateDir), config.PublishDir}
	db, err := c.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := db.OpenReadPool(ctx); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	d := &daemon{
		c: c, db: db, log: newLog(c.err), feed: newFeed(), systemd: newSystemd(c.Env), boxes: boxes,
		engine: &engine{
			db: db, stages: pipelineStages(config), mine: mine, grace: o.grace, lease: o.lease, ageAfter: o.ageAfter, abort: c.sig.abort, keep: o.front.keepEvents,
		},
		tidying: tidying{tidier: video.Cleaner{Config: config}},
	}
	d.untrace = d.trace(ctx)
	if d.beside, err = d.standBeside(ctx, o.front, config); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *daemon) close() error {
	d.untrace()
	d.systemd.close()
	return d.db.Close()
}

// inboxes are the directories to watch, which must be there.
func (o *serveOptions) inboxes() (inbox.Options, error) {
	boxes := inbox.Options{Settle: o.settle}
	if o.settle <= 0 {
		return boxes, usererr.Usagef("--settle %s: it must be more than nothing", o.settle)
	}
	for _, dir := range o.watch {
		abs, err := filepath.Abs(dir)
		if err == nil {
			_, err = os.ReadDir(abs)
		}
		if err != nil {
			return boxes, &usererr.Error{
				Kind: usererr.Usage,
				Text: fmt.Sprintf("--watch %s: %s", usererr.Printable(dir), usererr.SystemMessage(err)),
				Hint: "it must be a directory that this user may read",
			}
		}
		boxes.Dirs = append(boxes.Dirs, abs)
	}
	return boxes, nil
}
