package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/inbox"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages/video"
)

const serveHelp = `Serve works on tasks until it is stopped. Any number of daemons can work on one
database.

With --watch it also submits the files that appear in a directory or below, once
they have stopped growing. Each file is submitted once: its path, size and
modification time identify it, also after a restart and on other hosts. Hidden
and empty files, names such as *.part, *.tmp and *.crdownload, and names that are
not those of videos, such as *.txt, *.srt or *.jpg, are ignored. An upload may
pause for longer than --settle, so it is safest to upload as *.part and rename the
complete file. Files are never moved or deleted.

The first SIGTERM or Ctrl-C drains: the daemon claims nothing more, lets running
stages finish for as long as --grace, releases the rest, and exits with 0. The
second one stops at once, releases everything, and exits with 143 or 130. SIGHUP reads
the configuration file again, unless the log goes to a terminal: see cuelight config.

At the start it tries the hardware encoders of --encoders, and publishes those that
work in the list of workers.

With --whisper, a model, and whisper-cli, a program of whisper.cpp, it makes captions of
what is spoken in published videos that ask for automatic captions, one after the other.

With --until-idle it exits with 0 after a minute without work, or another time
(--until-idle=5m), and leaves tasks for later that wait for a time: for a database
that sleeps while nobody uses it, together with a timer that starts the daemon again.
Claims of remote workers, uploads, automatic captions in the making and due deliveries
of webhooks are work, too.

It waits for a database that does not answer, also at the start. It never changes the
tables of a database that is not private: see cuelight migrate.

With --listen it serves a dashboard, an HTTP API (described at /openapi.json), an
event stream and Prometheus metrics at that address. Access is controlled by two
secrets, in files that the first start creates, and by API keys (cuelight keys).

Published videos stay until they are deleted (cuelight delete). With --keep-finished
or --keep-dead, older videos leave the lists with their history, and all of their
files except published ones are removed. With --keep-source-copies only files are
removed: the copy of the source, which may be the only one, as that of an upload,
and results of stages. Such a video can be deleted and restored, but of the stages only
publish can be retried. See cuelight du for what each would free.

With --read-database-url the dashboard, lists of the API and metrics are read from a
standby of the database, while that is up to date; everything else uses the primary.

Logs go to standard error: JSON, or plain lines on a terminal. systemd units can
use Type=notify and WatchdogSec.`

const defaultReadMaxLag = 10 * time.Second

type serveOptions struct {
	*workOptions
	log        logOptions
	watch      []string
	settle     time.Duration
	ageAfter   time.Duration
	keep       *retentions
	perUser    int
	readMaxLag time.Duration
	http       *httpFlags
	watched    inbox.Options // of check
}

func (c *cli) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a daemon that works on tasks",
		Long:  serveHelp,
		Args:  noArguments,
	}
	o := &serveOptions{workOptions: c.workFlags(cmd)}
	f := cmd.Flags()
	f.StringArrayVar(&o.watch, "watch", nil,
		"submit the files that appear in this directory; repeatable, in the variable separated by \":\"")
	f.DurationVar(&o.settle, "settle", 10*time.Second, "how long a file must not change before it is submitted")
	f.DurationVar(&o.ageAfter, "age-after", 0,
		"how long a task waits for a stage before it precedes tasks of higher priority; 0 for ever")
	f.IntVar(&o.perUser, "max-running-per-user", 0, "maximum videos of one user (submit --user) in progress at once; 0 for no limit")
	o.keep = addRetentionFlags(f)
	f.Var(&o.keepSourceCopies, "keep-source-copies",
		"how long a published video can be retried without its source; 0 for ever")
	c.readURLFlag(f)
	f.DurationVar(&o.readMaxLag, "read-max-lag", defaultReadMaxLag, "how far the standby of --read-database-url may be behind")
	o.labelFlag(f)
	f.StringVar(&o.whisperModel, "whisper", "", "model of whisper.cpp, for the videos that ask for automatic captions")
	f.StringVar(&o.whisper, "whisper-cli", "whisper-cli", "whisper-cli program")
	o.untilIdleFlag(f)
	o.log.add(cmd)
	o.http = addHTTPFlags(f)
	bindEnvironment(f)
	cmd.PreRunE = func(*cobra.Command, []string) error { return errors.Join(o.check(c.ReadURL), c.CheckAddresses()) }
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.serve(cmd, o) }
	return cmd
}

func (c *cli) serve(cmd *cobra.Command, o *serveOptions) error {
	config, err := c.prepareWork(o.workOptions)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	log, reload := c.newLog(cmd, o.log)
	return c.withConnection(ctx, func(db *dbconn.Database) error { return c.runDaemon(ctx, db, o, config, log, reload) })
}

func (c *cli) runDaemon(
	ctx context.Context, db *dbconn.Database, o *serveOptions, config video.Config, log *zap.Logger, reload daemon.Reload,
) error {
	d, err := daemon.New(ctx, daemon.Options{
		DB: db, Config: config, Labels: o.labels, HTTP: o.http.HTTPOptions, Inbox: o.watched, Log: log, Reload: reload, Env: c.Env,
		KeepDeliveries: o.keep.deliveries.orForEver(), KeepDeadDeliveries: o.keep.deadDeliveries.orForEver(),
		ReadMaxLag: o.readMaxLag, UntilIdle: o.untilIdle,
		Engine: &daemon.Engine{
			Grace: o.grace, Lease: o.lease, AgeAfter: o.ageAfter, MaxPerUser: o.perUser, KeepEvents: o.keep.events.orForEver(),
			Retention: o.keep.options(config, db.Store),
			Name:      o.name, Version: programVersion(), Abort: c.sig.Abort,
		},
	})
	if err != nil {
		return err
	}
	err = d.Run(ctx)
	select {
	case <-c.sig.Abort:
		if s, ok := daemon.SignalOf(ctx); ok && err == nil {
			err = exitStatus(s.ExitCode())
		}
	default:
	}
	return err
}

// check checks the flags, and sets the directories to watch.
func (o *serveOptions) check(readURL string) error {
	errs := []error{checkFlags(
		flagCheck{o.settle > 0, "settle", o.settle, "positive"},
		flagCheck{o.perUser >= 0, "max-running-per-user", o.perUser, "positive, or 0 for no limit"},
		flagCheck{o.ageAfter >= 0, "age-after", o.ageAfter, "positive, or 0 for no ageing"},
		flagCheck{o.readMaxLag > 0, "read-max-lag", o.readMaxLag, "positive"},
		o.checkUntilIdle(), o.log.check(),
	)}
	o.watched = inbox.Options{UnchangedFor: o.settle}
	for _, dir := range o.watch {
		abs, err := filepath.Abs(dir)
		if err == nil {
			_, err = os.ReadDir(abs)
		}
		if err != nil {
			errs = append(errs, &usererr.Error{
				Kind: usererr.Usage,
				Text: fmt.Sprintf("--watch %s: %s", usererr.Printable(dir), usererr.SystemMessage(err)),
				Hint: "it must be a directory that this user may read",
			})
		}
		o.watched.Dirs = append(o.watched.Dirs, abs)
	}
	var standby []string
	if readURL != "" {
		standby = append(standby, "--read-database-url")
	}
	if o.readMaxLag != defaultReadMaxLag {
		standby = append(standby, "--read-max-lag")
	}
	return errors.Join(append(errs, o.http.check(standby), o.checkConfig())...)
}
