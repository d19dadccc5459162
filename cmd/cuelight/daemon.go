package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/inbox"
	"github.com/cuelight/cuelight/internal/trace"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// daemon is a running `cuelight serve`.
type daemon struct {
	c       *cli
	db      *dbconn.Database
	log     *zap.Logger
	feed    *feed
	systemd *systemd
	boxes   inbox.Options
	engine  *engine
	beside  *beside
	tracer  *trace.Tracer // nil unless the environment says so
	untrace func()
	tidying tidying

	ready   sync.Once
	began   sync.Once
	hearing atomic.Bool // notifications come in
	stuck   bool        // a loop does not go round any more; it was said
}

// run works until ctx is done and the work has drained.
func (d *daemon) run(ctx context.Context) error {
	d.log.Info("database chosen", zap.String("database", d.db.Name), zap.Bool("private", d.db.Source.Private), zap.String("because", d.db.Source.Origin))
	d.engine.observe, d.engine.listener = d.observe, d.listening
	d.engine.readers = d.beside.readers()

	ended := make(chan error, 1)
	working, stopWork := context.WithCancel(ctx)
	defer stopWork()
	var all sync.WaitGroup
	all.Go(func() { ended <- d.work(working) })
	keeping, unkeep := context.WithCancel(context.WithoutCancel(ctx))
	all.Go(func() { d.db.KeepServer(keeping, d.server) })
	besides, unstand := context.WithCancel(context.WithoutCancel(ctx))
	all.Go(func() { d.beside.run(besides) })
	d.tidying.log = d.log
	untidy := d.tidying.start()
	err := d.attend(ctx, stopWork, ended)
	untidy()
	unstand() // people can look on while the work drains
	unkeep()
	all.Wait()

	select {
	case <-d.c.sig.abort:
		if s, ok := received(ctx); ok && err == nil {
			return quiet(s.code())
		}
	default:
	}
	return err
}

// attend logs what happens, and shows the service manager that this process is
// not stuck, until the work has ended. A daemon that cannot serve any more what it is
// to serve ends, so that its service manager starts it anew.
func (d *daemon) attend(ctx context.Context, stopWork func(), ended <-chan error) (fallen error) {
	var beat <-chan time.Time
	if d.systemd.watchdog > 0 {
		tick := time.NewTicker(d.systemd.watchdog)
		defer tick.Stop()
		beat = tick.C
	}
	stopping, again := ctx.Done(), d.c.sig.abort
	for {
		select {
		case err := <-ended:
			d.events()
			return errors.Join(err, fallen)
		case fallen = <-d.beside.fell:
			d.log.Error("stopping: nothing is served any more", zap.Error(fallen))
			d.systemd.tell("STOPPING=1\nSTATUS=draining")
			stopWork()
		case <-d.feed.wake:
			d.events()
		case <-beat:
			d.feedWatchdog()
		case <-stopping:
			stopping = nil
			s, _ := received(ctx)
			d.log.Info("stopping", zap.Stringer("signal", s.signal), zap.Duration("grace", d.engine.grace),
				zap.String("hint", "a second signal stops at once"))
			d.systemd.tell("STOPPING=1\nSTATUS=draining")
		case <-again:
			again = nil
			d.log.Warn("stopping at once")
		}
	}
}

// feedWatchdog shows the service manager that all loops go round. It will end a
// process that does not show it, and start another.
func (d *daemon) feedWatchdog() {
	loops := d.engine.pulse.stuck()
	if len(loops) == 0 {
		d.stuck = false
		d.systemd.tell("WATCHDOG=1")
	} else if !d.stuck {
		d.stuck = true
		d.log.Error("stuck: the service manager is not told that this process lives", zap.Strings("loops", loops))
	}
}

func (d *daemon) events() {
	for _, e := range d.feed.take() {
		if e.Kind == stages.WakeMissed && !d.hearing.Load() {
			continue // it was said that nothing is heard
		}
		logEvent(d.log, d.tracer, e)
		switch e.Kind {
		case stages.WorkerStarted, stages.DatabaseBack:
			d.tellReady("working")
		case stages.DatabaseLost:
			d.systemd.tell("STATUS=waiting for the database")
		}
	}
}

// tellReady tells the service manager that the start is over: the daemon
// works, or has begun to wait for a database that is away, which is not the
// unit's failure.
func (d *daemon) tellReady(status string) {
	d.ready.Do(func() { d.systemd.tell("READY=1") })
	d.systemd.tell("STATUS=" + status)
}

// work waits for the database and works. It comes back to waiting when the
// database goes away in the very moment in which the work begins.
func (d *daemon) work(ctx context.Context) error {
	for {
		if err := d.await(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		var g errgroup.Group
		inner, stop := context.WithCancel(ctx)
		g.Go(func() error {
			defer stop()
			return d.engine.run(inner)
		})
		if len(d.boxes.Dirs) > 0 {
			g.Go(func() error { return d.watchBoxes(inner) })
		}
		err := g.Wait()
		stop()
		// Without an error, it was drained by somebody.
		if ctx.Err() != nil || err == nil || dbconn.Explain(err).Kind != usererr.Unreachable {
			return err
		}
	}
}

// await returns when the database answers and has the right tables. It returns
// an error where waiting has no sense.
func (d *daemon) await(ctx context.Context) error {
	away := false
	for wait := 250 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := d.db.Ready(ctx)
		if err == nil {
			err = d.engine.mine.agrees(ctx, d.db.Store, false)
		}
		switch {
		case err == nil:
			if away {
				d.log.Info("database back")
			}
			return nil
		case ctx.Err() != nil:
			return nil
		case dbconn.Explain(err).Kind != usererr.Unreachable, dbconn.IsLoginError(err):
			return d.db.Describe(err)
		}
		if !away {
			away = true
			d.log.Warn("database away", zap.String("error", dbconn.Reason(err)))
			d.tellReady("waiting for the database")
		}
		if pause(ctx, wait) != nil {
			return nil
		}
	}
}

// observe is told by the Runner, and must not wait.
func (d *daemon) observe(e stages.Event) {
	d.feed.observe(e)
	d.beside.metrics.Observe(e)
	d.beside.wakeups.observe(e)
	if e.Kind == stages.WorkerStarted {
		d.began.Do(func() { close(d.beside.begun) })
	}
}

// trace begins to trace, where the environment says so. The function it returns
// sends what is left.
func (d *daemon) trace(ctx context.Context) (stop func()) {
	d.tracer, stop = startTracing(ctx, d.engine.abort, d.troubled("traces cannot be sent", "traces are sent again"),
		func(what string, err error) { d.log.Warn(what, zap.Error(err)) })
	d.engine.stages = d.tracer.Stages(d.engine.stages)
	return stop
}

func (d *daemon) listening(connected bool, err error) {
	d.hearing.Store(connected)
	d.beside.metrics.Listening(connected, err)
	if connected {
		d.log.Info("listening")
	} else {
		fields := []zap.Field{zap.Error(err)}
		if errors.Is(err, notify.ErrPooled) {
			fields = append(fields, zap.String("hint", "--notify-url takes an address that leads to PostgreSQL itself"))
		}
		d.log.Warn("not listening: the sweep goes on alone", fields...)
	}
}

// server logs the end of the private server, and its new beginning.
func (d *daemon) server(err error) {
	if err != nil {
		d.log.Error("private database server ended", zap.Error(err))
	} else {
		d.log.Info("private database server started again")
	}
}

// watchBoxes submits what is dropped into the watched directories.
func (d *daemon) watchBoxes(ctx context.Context) error {
	d.boxes.Submit = func(ctx context.Context, files []inbox.File) error {
		subs := make([]store.Submission, len(files))
		for i, f := range files {
			subs[i] = store.Submission{Source: sourceOfPath(f.Path), RequestID: f.RequestID()}
		}
		receipts, err := d.db.Store.SubmitAll(ctx, subs)
		if err != nil {
			return err
		}
		for i, r := range receipts {
			if !r.Existed {
				d.log.Info("file submitted", zap.Stringer("task_id", r.ID), zap.String("path", files[i].Path))
			}
		}
		return nil
	}
	d.boxes.OnError = func(dir string, err error) {
		switch {
		case dir == "" && err != nil:
			d.log.Warn("dropped files cannot be submitted yet", zap.Error(err))
		case dir == "":
			d.log.Info("dropped files can be submitted again")
		case err != nil:
			d.log.Warn("watched directory cannot be read", zap.String("path", dir), zap.Error(err))
		default:
			d.log.Info("watched directory can be read again", zap.String("path", dir))
		}
	}
	for _, dir := range d.boxes.Dirs {
		d.log.Info("watching", zap.String("path", dir))
	}
	return inbox.Run(ctx, d.boxes)
}
