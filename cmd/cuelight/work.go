package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

const workHelp = `Work works for a coordinator, which is a cuelight serve --listen on another host. It
needs no database and no shared directory: one address, which it connects to, and a
key of the scope work, which cuelight keys create NAME --scope work prints there.

At the start it tries the hardware encoders of --encoders, and publishes those that
work in the list of workers. It downloads the source of each task, transcodes it, and
uploads the result, which the coordinator checks before it counts. Its files are in
--scratch-dir, and are deleted when a task's work is done.

It waits for a coordinator that does not answer, also at the start. Transfers that
are cut continue where they ended. Without contact to the coordinator it stops its
work before others may take it.

With --until-idle it exits with 0 after a minute without work, or another time
(--until-idle=5m): for workers that an autoscaler starts when there is work.

The first SIGTERM or Ctrl-C drains: the worker claims nothing more, lets running
stages finish for as long as --grace, releases the rest, and exits with 0. The
second one stops at once. SIGHUP reads the configuration file again, unless the log
goes to a terminal: see cuelight config.`

// remoteWorkOptions are the flags of cuelight work.
type remoteWorkOptions struct {
	*workOptions
	log                     logOptions
	server, keyFile, caFile string
	key                     string // of keyFile
	scratch                 string
	stages                  []string
	slots                   int
}

func (c *cli) workCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "work --server URL --key-file FILE",
		Short: "Work for a coordinator, without a database",
		Long:  workHelp,
		Args:  noArguments,
	}
	o := &remoteWorkOptions{workOptions: newWorkOptions()}
	f := cmd.Flags()
	f.StringVar(&o.server, "server", "", "address of the coordinator, such as https://media.example")
	f.StringVar(&o.keyFile, "key-file", "", "file with a key of the scope work")
	f.StringVar(&o.caFile, "ca-file", "", "certificates of authorities to trust besides the system's, in PEM form")
	f.StringVar(&o.name, "name", "", "name of this worker (default the host's name)")
	o.labelFlag(f)
	f.StringVar(&o.scratch, "scratch-dir", "", "directory for the files of running attempts (default DATA-DIR/scratch)")
	f.StringSliceVar(&o.stages, "stages", video.RemoteStageNames(), "stages to work on")
	f.IntVar(&o.slots, "slots", 1, "concurrent tasks of each stage")
	f.DurationVar(&o.lease, "lease", store.DefaultLease,
		"how long this process may lose contact with the coordinator before other workers take its tasks")
	o.untilIdleFlag(f)
	o.toolFlags(f)
	o.transcodeFlags(f)
	o.log.add(cmd)
	bindEnvironment(f)
	cmd.PreRunE = func(*cobra.Command, []string) error { return o.check() }
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.work(cmd, o) }
	return cmd
}

func (c *cli) work(cmd *cobra.Command, o *remoteWorkOptions) error {
	ctx := cmd.Context()
	config, err := o.prepare(c)
	if err != nil {
		return err
	}
	unlock, err := claimScratch(ctx, config.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	log, reload := c.newLog(cmd, o.log)
	contact := daemon.NewContactLog(log)
	pipeline, client, err := o.connect(config, contact.Observe)
	if err != nil {
		return err
	}
	if err := daemon.CheckCoordinator(ctx, client); err != nil {
		return err
	}
	return daemon.Work(ctx, daemon.WorkOptions{
		Client: client, Server: o.server, Tools: config.Tools, Labels: o.labels, Log: log, Reload: reload, Contact: contact, Env: c.Env,
		UntilIdle: o.untilIdle,
		Runner: stages.Runner{
			Pipeline: pipeline, Name: o.name, Version: programVersion(), Lease: o.lease,
			Grace: cmp.Or(o.grace, -1), Abort: c.sig.Abort,
		},
	})
}

// prepare checks everything that the work needs, and creates the scratch directory last.
func (o *remoteWorkOptions) prepare(c *cli) (video.Config, error) {
	if o.server == "" || o.keyFile == "" {
		return video.Config{}, usererr.Usagef("--server and --key-file are needed")
	}
	scratch := o.scratch
	if scratch == "" {
		data, err := c.DataPath()
		if err != nil {
			return video.Config{}, err
		}
		scratch = filepath.Join(data, "scratch")
	}
	scratch, err := filepath.Abs(scratch)
	if err != nil {
		return video.Config{}, err
	}
	config, err := o.config(scratch, scratch)
	if err == nil {
		o.key, err = readKey(o.keyFile)
	}
	if err != nil {
		return config, err
	}
	config.Marker = ""
	config.Slots = video.Slots{Transcode: o.slots, Metadata: o.slots}
	if err := o.prepareTools(config); err != nil {
		return config, err
	}
	return config, dbconn.MakeWritable("scratch", scratch)
}

// check checks the flags, except that the coordinator and the key are given.
func (o *remoteWorkOptions) check() error {
	var errs []error
	if o.server != "" {
		errs = append(errs, o.checkServer())
	}
	errs = append(errs, checkFlags(
		o.checkUntilIdle(),
		flagCheck{o.slots >= 1 && o.slots <= 1000, "slots", o.slots, "1 to 1000"},
		flagCheck{len(o.stages) > 0, "stages", "", "some of " + strings.Join(video.RemoteStageNames(), ", ")},
		o.log.check(),
	))
	for _, name := range o.stages {
		if !slices.Contains(video.RemoteStageNames(), name) {
			errs = append(errs, invalidFlag("stages", name, "some of "+strings.Join(video.RemoteStageNames(), ", ")))
		}
	}
	// The flags that this command does not have are valid.
	o.downloadTimeout = time.Hour
	return errors.Join(append(errs, o.checkConfig())...)
}

func (o *remoteWorkOptions) checkServer() error {
	u, err := url.Parse(o.server)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return invalidFlag("server", o.server, "an address such as https://media.example")
	case u.Scheme == "http" && access.CheckListen(hostPort(u), false, false, false) != nil:
		return &usererr.Error{
			Kind: usererr.Usage, Text: "--server " + usererr.Printable(o.server) + " would send the key without encryption",
			Hint: "use https; http is for this host alone",
		}
	}
	return nil
}

func readKey(file string) (string, error) {
	key, err := access.ReadSecret(file)
	if err != nil {
		return "", usererr.Usagef("--key-file %s: %s", usererr.Printable(file), usererr.SystemMessage(err))
	}
	if _, isKey := access.KeyPrefix(key); !isKey {
		return "", &usererr.Error{
			Kind: usererr.Usage, Text: "--key-file " + usererr.Printable(file) + ": it has no API key, which begins with cue_",
			Hint: "put the line into it that cuelight keys create NAME --scope work prints on the coordinator's host",
		}
	}
	return key, nil
}

func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return u.Host + ":80"
	}
	return u.Host
}

// connect returns the client of the coordinator, and the pipeline that works with its files.
func (o *remoteWorkOptions) connect(config video.Config, onContact func(error)) (*stages.Pipeline, *remote.Client, error) {
	transport := remote.NewTransport()
	if o.caFile != "" {
		var err error
		if transport.TLSClientConfig, err = trust(o.caFile); err != nil {
			return nil, nil, err
		}
	}
	client, err := remote.NewClient(remote.ClientOptions{
		URL: strings.TrimSuffix(o.server, "/") + "/api/v1/worker", Key: o.key, Graph: store.Video(),
		HTTP: &http.Client{Transport: transport}, OnContact: onContact,
	})
	if err != nil {
		return nil, nil, usererr.Usagef("%v", err)
	}
	pipeline, err := video.Pipeline(video.RemoteStages(config, client, o.stages)...)
	return pipeline, client, err
}

// trust returns a configuration that trusts the certificates in a file, too.
func trust(file string) (*tls.Config, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, usererr.Usagef("--ca-file %s: %s", usererr.Printable(file), usererr.SystemMessage(err))
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, usererr.Usagef("--ca-file %s: there is no certificate in PEM form", usererr.Printable(file))
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// scratchWait is how long a worker waits for its directory: a child that a killed worker was just starting may have it
// for a moment.
const scratchWait = 2 * time.Second

// claimScratch locks the scratch directory, and removes what a killed process left in it.
func claimScratch(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, scratchWait)
	defer cancel()
	switch err := flock.Lock(ctx, f, flock.Exclusive); {
	case errors.Is(err, context.DeadlineExceeded):
		f.Close()
		return nil, &usererr.Error{
			Kind: usererr.Usage, Text: "another worker uses the directory " + usererr.Printable(dir),
			Hint: "give each worker on a host its own --scratch-dir",
		}
	case err != nil && ctx.Err() != nil:
		f.Close()
		return nil, err
	} // a file system without locks has one worker
	if err := os.RemoveAll(filepath.Join(dir, "tasks")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		flock.Unlock(f)
		return nil, fmt.Errorf("empty the scratch directory: %w", err)
	}
	return func() { flock.Unlock(f) }, nil
}
