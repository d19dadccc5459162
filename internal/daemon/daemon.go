// Package daemon runs `cuelight serve`: the workers of the video pipeline and
// the services of a daemon, which are the HTTP server with the API and the dashboard,
// webhooks, alerts, watched directories, and the cleanup of disks.
//
// [New] checks the options and opens the listening socket, so that a wrong address fails
// before any work begins. Daemon.Run blocks until the context is done and the work has
// drained. It waits for a database that does not answer; a web server that has stopped ends
// the daemon, so that the service manager restarts it.
//
// [Engine] runs the workers alone, for `cuelight run`. The package neither parses flags
// nor opens the database.
package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/inbox"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/trace"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// Options say what a daemon does.
type Options struct {
	DB     *dbconn.Database // the caller closes it after Run
	Config video.Config
	Labels []string // that tasks may ask for
	Engine *Engine  // New sets its DB and Stages, Run its Workspace
	HTTP   HTTPOptions
	Inbox  inbox.Options // the watched directories; New sets Skip
	Log    *zap.Logger
	Reload Reload
	Env    dbconn.Environment // has the service manager's socket

	// For how long deliveries of webhooks are kept, and dead ones; 0 for the default, negative for ever.
	KeepDeliveries, KeepDeadDeliveries time.Duration
	// UntilIdle ends the daemon after so long without a running attempt, unless remote workers have claims, or uploads or
	// deliveries are to be completed: then it waits as long again. Default 0: never.
	UntilIdle time.Duration
	// ReadMaxLag is how far the standby of DB may be behind, if it has one.
	ReadMaxLag time.Duration
}

// Daemon is a running `cuelight serve`.
type Daemon struct {
	Options
	events   *EventQueue
	systemd  *systemd
	services *services
	tracer   *trace.Tracer // nil unless the environment configures tracing
	flush    func()        // sends the last traces

	readyOnce    sync.Once
	startedOnce  sync.Once
	listening    atomic.Bool // the listener is connected
	stuckLogged  bool
	cleanup      cleanup
	watchedFiles watchedFiles
	captions     automaticCaptions
}

// New prepares a daemon and listens, if it is to. Run must follow.
func New(ctx context.Context, o Options) (*Daemon, error) {
	if err := o.DB.OpenReadPool(ctx); err != nil {
		return nil, err
	}
	if o.Engine.Name != "" {
		o.Log = o.Log.With(zap.String("worker_name", o.Engine.Name))
	}
	// A watched directory may contain the data directory, with files that are no sources.
	o.Inbox.Skip = []string{
		filepath.Join(o.Config.DataDir, "tasks"), filepath.Join(o.Config.DataDir, "copies"),
		filepath.Join(o.Config.DataDir, dbconn.PrivateDir), o.Config.PublishDir,
	}
	d := &Daemon{
		Options: o, events: NewEventQueue(), systemd: newSystemd(o.Env),
		cleanup: newCleanup(video.Cleaner{
			Config: o.Config, Results: o.DB.Reads.Store.Result, Completed: o.DB.Store.Completed,
		}, o.Log),
		watchedFiles: watchedFiles{store: o.DB.Store, bucket: o.Config.Bucket, log: o.Log},
		captions:     automaticCaptions{store: o.DB.Store, config: o.Config, log: o.Log, lease: automaticLease},
	}
	d.tracer, d.flush = StartTracing(ctx, o.Engine.Version, o.Engine.Abort,
		failureLogger(o.Log, "traces cannot be sent", "traces are sent again"),
		func(what string, err error) { o.Log.Warn(what, zap.Error(err)) })
	d.Engine.DB, d.Engine.Stages = o.DB, d.tracer.Stages(pipelineStages(o.DB, o.Config))
	var err error
	if d.services, err = d.newServices(ctx); err != nil {
		d.close()
		return nil, err
	}
	d.cleanup.observe = func(removed video.CleanResult) { d.services.metrics.ObserveSourceCopies(removed.SourceCopies) }
	return d, nil
}

func (d *Daemon) close() {
	d.flush()
	d.systemd.close()
}

// Run works until ctx is done and the work has drained. The services go on meanwhile, so
// that operators can watch.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.close()
	d.Log.Info("database chosen", zap.String("database", d.DB.Name), zap.Bool("private", d.DB.Target.Private),
		zap.String("because", d.DB.Target.Origin))
	d.Engine.Observe, d.Engine.onListening, d.Engine.wakes = d.observe, d.onListening, d.services.wakes()

	workCtx, stopWork := context.WithCancel(ctx)
	serviceCtx, stopServices := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	var all sync.WaitGroup
	defer all.Wait()
	defer stopServices()
	defer stopWork()
	trial := newTrial()
	d.Engine.found = trial.wait
	// In the background, because opening a device may take seconds.
	all.Go(func() { trial.finish(tryCapabilities(workCtx, d.Config.Tools, d.Labels, d.Log)) })
	all.Go(func() { ended <- d.work(workCtx) })
	all.Go(func() { d.DB.SuperviseServer(serviceCtx, d.logPrivateServer) })
	all.Go(func() { d.services.run(serviceCtx) })
	all.Go(func() {
		if found := trial.wait(workCtx); found != nil && found.Whisper {
			d.captions.run(workCtx, d.services.workStarted)
		}
	})
	defer d.cleanup.start(d.services.workStarted)()
	return d.supervise(ctx, stopWork, ended)
}

// supervise logs events and feeds the service manager's watchdog until the work has
// ended. It stops the work if nothing is served any more.
func (d *Daemon) supervise(ctx context.Context, stopWork func(), ended <-chan error) (failure error) {
	var watchdogTick <-chan time.Time
	if d.systemd.watchdog > 0 {
		tick := time.NewTicker(d.systemd.watchdog)
		defer tick.Stop()
		watchdogTick = tick.C
	}
	stopping, abort := ctx.Done(), d.Engine.Abort
	for {
		select {
		case err := <-ended:
			d.logEvents()
			return errors.Join(err, failure)
		case failure = <-d.services.failed:
			d.Log.Error("stopping: the web server has ended", zap.Error(failure))
			d.systemd.notify("STOPPING=1\nSTATUS=draining")
			stopWork()
		case <-d.events.Wake:
			d.logEvents()
		case <-d.events.Idle(d.UntilIdle):
			if d.services.isBusy(ctx) {
				d.events.RestartIdle()
				continue
			}
			d.Log.Info("stopping because there is no work", zap.Duration("idle", d.UntilIdle))
			d.systemd.notify("STOPPING=1\nSTATUS=draining")
			stopping, d.UntilIdle = nil, 0
			stopWork()
		case <-watchdogTick:
			d.feedWatchdog()
		case <-d.Reload.Signal:
			d.Reload.Do()
		case <-stopping:
			stopping = nil
			s, _ := SignalOf(ctx)
			d.Log.Info("stopping", zap.Stringer("signal", s.Signal), zap.Duration("grace", d.Engine.Grace),
				zap.String("hint", "a second signal stops at once"))
			d.systemd.notify("STOPPING=1\nSTATUS=draining")
		case <-abort:
			abort = nil
			d.Log.Warn("stopping at once")
		}
	}
}

// feedWatchdog tells the service manager that this process is alive, unless a loop is
// stuck. The manager restarts a process that does not report.
func (d *Daemon) feedWatchdog() {
	loops := d.Engine.watchdog.stuck()
	if len(loops) == 0 {
		d.stuckLogged = false
		d.systemd.notify("WATCHDOG=1")
	} else if !d.stuckLogged {
		d.stuckLogged = true
		d.Log.Error("stuck: the service manager's watchdog is not fed any more", zap.Strings("loops", loops))
	}
}

func (d *Daemon) logEvents() {
	for _, e := range d.events.Take() {
		if e.Kind == stages.WakeMissed && !d.listening.Load() {
			continue // expected without a listener, which has been logged
		}
		logEvent(d.Log, d.tracer, e)
		switch e.Kind {
		case stages.WorkerStarted, stages.DatabaseAvailable:
			d.notifyReady("working")
		case stages.DatabaseUnavailable:
			d.systemd.notify("STATUS=waiting for the database")
		}
	}
}

// notifyReady tells the service manager that the start is over. Waiting for a database
// counts: it is not the unit that has failed.
func (d *Daemon) notifyReady(status string) {
	d.readyOnce.Do(func() { d.systemd.notify("READY=1") })
	d.systemd.notify("STATUS=" + status)
}

// work waits for the database and works. It waits again if the database stops answering
// before the workers are registered.
func (d *Daemon) work(ctx context.Context) error {
	for {
		if err := d.waitForDatabase(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		var g errgroup.Group
		inner, stop := context.WithCancel(ctx)
		g.Go(func() error {
			defer stop()
			return d.Engine.Run(inner)
		})
		if len(d.Inbox.Dirs) > 0 {
			g.Go(func() error { return d.watchedFiles.run(inner, d.Inbox) })
		}
		err := g.Wait()
		stop()
		// Without an error, an operator drained the worker.
		if ctx.Err() != nil || err == nil || dbconn.Explain(err).Kind != usererr.Unreachable {
			return err
		}
	}
}

// waitForDatabase returns nil when the database answers and has the right tables, or ctx
// is done, and an error if waiting cannot help.
func (d *Daemon) waitForDatabase(ctx context.Context) error {
	var logged time.Time // that it is away; zero: it is not
	var cause string
	isFinal := func(err error) bool {
		if errors.Is(err, store.ErrSchemaOlder) {
			return false // daemons of the version before may be working
		}
		_, isStorage := errors.AsType[*storage.ServiceError](err)
		return isStorage || dbconn.IsLoginError(err) || dbconn.Explain(err).Kind != usererr.Unreachable
	}
	for delay := 250 * time.Millisecond; ; delay = min(2*delay, 5*time.Second) {
		err := d.DB.EnsureTables(ctx)
		if err == nil {
			d.Engine.Workspace, err = useLocations(ctx, d.DB.Store, d.Config)
		}
		if err == nil {
			err = d.Engine.Workspace.checkWorkers(ctx, d.DB.Store, false)
		}
		switch {
		case err == nil:
			if !logged.IsZero() {
				d.Log.Info("database available again")
			}
			return nil
		case ctx.Err() != nil:
			return nil
		case isFinal(err):
			return d.DB.WithName(err)
		}
		if reason := dbconn.Reason(err); logged.IsZero() || reason != cause && time.Since(logged) >= stages.OutageCauseInterval {
			logged, cause = time.Now(), reason
			if errors.Is(err, store.ErrSchemaOlder) {
				d.Log.Warn("waiting until cuelight migrate has upgraded the tables", zap.Error(err))
			} else {
				d.Log.Warn("database unavailable", zap.String("error", reason))
			}
			d.notifyReady("waiting for the database")
		}
		if ctxsleep.For(ctx, delay) != nil {
			return nil
		}
	}
}

// observe receives the Runner's events. It must not block.
func (d *Daemon) observe(e stages.Event) {
	d.events.Observe(e)
	d.services.metrics.Observe(e)
	d.services.wakeLatency.observe(e)
	if e.Kind == stages.WorkerStarted {
		d.startedOnce.Do(func() { close(d.services.workStarted) })
	}
}

// onListening is called when the listener connects or loses its connection.
func (d *Daemon) onListening(connected bool, err error) {
	d.listening.Store(connected)
	d.services.metrics.ObserveListener(connected, err)
	if connected {
		d.Log.Info("notifications connected")
		return
	}
	fields := []zap.Field{zap.Error(err)}
	if errors.Is(err, notify.ErrPooled) {
		fields = append(fields, zap.String("hint", "--notify-url takes an address that leads to PostgreSQL itself"))
	}
	d.Log.Warn("notifications not connected: only the sweep finds work", fields...)
}

// listenerHealthy reports whether notifications arrive, or cannot because of a pooler:
// the sweep alone finds work then, as configured.
func (d *Daemon) listenerHealthy() bool { return d.listening.Load() || d.DB.BehindPooler() }

func (d *Daemon) logPrivateServer(err error) {
	if err != nil {
		d.Log.Error("private database server ended", zap.Error(err))
	} else {
		d.Log.Info("private database server restarted")
	}
}
