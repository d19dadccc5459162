package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/debug"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/metrics"
	"github.com/cuelight/cuelight/internal/metrics/health"
	"github.com/cuelight/cuelight/internal/trace"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
	"github.com/cuelight/cuelight/web/ui"
)

// beside is what a daemon does beside its work: it tells webhooks of events, and
// where it listens, shows people and programs how things are.
type beside struct {
	o      *frontOptions
	db     *dbconn.Database
	log    *zap.Logger
	config video.Config
	tracer *trace.Tracer
	abort  <-chan struct{} // ends it at once

	hooks     *webhook.Webhooks
	hookWakes *notify.Wakes
	alarms    alarms
	begun     chan struct{} // closed once the work has begun
	fell      chan error    // why nothing is served any more, if nobody told it to end
	metrics   *metrics.Metrics
	wakeups   wakeups

	// Where it listens; nil otherwise.
	listener  net.Listener // run closes it
	server    *web.Server
	board     *ui.UI
	feed      *eventfeed.Feed
	feedWakes *notify.Wakes
	uploads   *upload.Uploads
}

// standBeside prepares it. What it takes is given back by run, and at once where it
// does not come to that.
func (d *daemon) standBeside(ctx context.Context, o *frontOptions, config video.Config) (*beside, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	b := &beside{
		o: o, db: d.db, log: d.log, config: config, tracer: d.tracer, abort: d.engine.abort,
		hookWakes: notify.NewWakes(), feedWakes: notify.NewWakes(), begun: make(chan struct{}), fell: make(chan error, 1),
	}
	b.metrics = metrics.New(metrics.Options{
		Graph: d.db.Store.Graph(), Slots: slotsOf(d.engine), Version: programVersion(), Pool: d.db.Pool,
		Dirs: []string{config.DataDir, config.PublishDir}, WebhookTypes: webhook.Types(), KeepEvents: o.keepEvents,
		Database: metrics.NewDatabase(d.db.Reads.Pool, d.db.Store.Graph(), metrics.DatabaseOptions{}),
	})
	b.hooks = webhook.New(webhook.Options{
		DB: d.db.Pool, Store: d.db.Store, Pipeline: d.db.Store.Graph().Name(), UserAgent: "Cuelight/" + programVersion(),
		Allow: o.allowed, AllowHTTP: o.webhookHTTP, Wake: b.hookWakes.C(), Abort: b.abort,
		OnDelivery: func(seen webhook.DeliveryResult) { b.metrics.WebhookDelivery(seen.Type, string(seen.Outcome)) },
		OnError:    d.troubled("webhooks wait", "webhooks wait no more"),
	})
	b.alarms = alarms{hooks: b.hooks, log: d.log, host: host, hearing: d.hears, disks: health.New(health.Options{Checks: b.disks()})}
	if o.listen == "" {
		return b, nil
	}
	return b, b.open(ctx, d)
}

// troubled logs that something cannot go on for now, and that it can again.
func (d *daemon) troubled(cannot, can string) func(error) {
	return func(err error) {
		if err != nil {
			d.log.Warn(cannot, zap.Error(err))
		} else {
			d.log.Info(can)
		}
	}
}

// disks are those that the work needs room on.
func (b *beside) disks() []health.Check {
	floor := max(b.config.Reserve, 0)
	return []health.Check{
		health.Disk("data", b.config.DataDir, floor),
		health.Disk("published", b.config.PublishDir, floor),
	}
}

// open listens, and makes what is served.
func (b *beside) open(ctx context.Context, d *daemon) (err error) {
	guard, err := b.o.guard(b.config.DataDir, b.db.Reads.ReservedStore, b.log)
	if err != nil {
		return err
	}
	b.feed = newEventFeed(b.db.Reads.Store, b.feedWakes, d.troubled("events cannot be read", "events are read again"))
	b.uploads, err = upload.New(upload.Options{
		Dir: b.config.DataDir, BasePath: web.UploadsPath(b.o.basePath), MaxBytes: int64(b.o.uploadMost), MinFree: cmp.Or(max(b.config.Reserve, 0), -1),
		Principal: func(ctx context.Context) string { return access.From(ctx).Name }, ProblemTypePrefix: web.ProblemTypes, ProblemTitle: web.ProblemTitle,
		CheckPrincipal: stillOf(guard), Check: mayUpload, OnComplete: submitUpload(b.db.Reads.Store), SourceState: fateOfUpload(b.db.Reads.Store),
		OnError: func(id string, err error) { b.log.Warn("upload failed", zap.String("upload", id), zap.Error(err)) },
	})
	if err != nil {
		return err
	}
	if b.board, err = b.dashboard(); err != nil {
		return errors.Join(err, b.uploads.Close())
	}
	o := b.o.webOptions()
	o.MaxRequestsPerPrincipal = max(int(b.db.Reads.Pool.Config().MaxConns)/2, 1)
	// To look at them and to change them is not to deliver.
	receivers := webhooksOf(b.db.Reads.Pool, b.db.Reads.Store, webhookOptions{allow: b.o.allowed, http: b.o.webhookHTTP})
	o.Store, o.Guard, o.Webhooks, o.Dashboard, o.Published = b.db.Reads.Store, guard, receivers, b.board, b.config.PublishDir
	o.Subscribe = func(after int64, keep func(store.Event) bool) web.Subscription { return b.feed.Subscribe(after, keep) }
	o.Wrap, o.Abort = b.tracer.Handler, b.abort
	o.Observe = func(r web.Request) { b.metrics.HTTPRequest(r.Route, r.Status, r.Duration, r.Stream) }
	o.Uploads, o.Metrics = b.uploads, b.metrics.Handler()
	known := func(r *http.Request) bool { return access.Check(r.Context(), access.Read) == nil }
	o.Healthy = health.New(health.Options{Checks: []health.Check{health.Loops(d.engine.pulse.stuck)}, Detail: known})
	o.Ready = health.New(health.Options{Checks: b.readiness(d), Detail: known})
	o.OnError = func(route string, err error) {
		b.log.Warn("request failed", zap.String("route", route), zap.Error(err))
	}
	o.ErrorLog = zap.NewStdLog(b.log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel)))
	if b.server, err = web.New(o); err != nil {
		err = &usererr.Error{Kind: usererr.Usage, Text: err.Error()} // only flags can be wrong
	} else {
		b.listener, err = b.o.bind(ctx)
	}
	if err != nil {
		return errors.Join(err, b.uploads.Close())
	}
	b.metrics.HTTPStreams(b.server.Streams)
	return nil
}

// hears reports whether notifications come in. Behind a pooler that lets none through
// the sweep goes on alone, and that is all there will be.
func (d *daemon) hears() bool {
	return d.hearing.Load() || d.db.BehindPooler()
}

func (b *beside) readiness(d *daemon) []health.Check {
	checks := []health.Check{
		{Name: "database", Run: b.db.Reads.Reserved.Ping},
		{Name: "schema", Run: b.db.Reads.ReservedStore.Check},
		health.Listening(d.hears),
	}
	return append(checks, b.disks()...)
}

// dashboard draws the pages.
func (b *beside) dashboard() (*ui.UI, error) {
	at := showcase{publish: b.config.PublishDir, base: b.o.basePath}
	return ui.New(ui.Options{
		Store: ui.NewReader(b.db.Reads.Store), Actions: operations{b.db.Reads.Store}, Base: b.o.basePath, Version: programVersion(),
		Uploads: web.UploadsPath(b.o.basePath), Login: b.o.basePath + "/login", Logout: b.o.basePath + "/logout",
		Subscribe: func(keep func(store.Event) bool) ui.Subscription { return b.feed.Subscribe(eventfeed.Now, keep) },
		Viewer: func(ctx context.Context) ui.Viewer {
			who := access.From(ctx)
			return ui.Viewer{Name: who.Name, Submit: who.Scope >= access.Submit, Operate: who.Scope >= access.Admin}
		},
		OnError: func(where string, err error) {
			b.log.Warn("page cannot be shown", zap.String("page", where), zap.Error(err))
		},
		WakeLatency: b.wakeups.within,
		Poster:      func(t store.Task) (string, bool) { return at.newest(t.ID, "poster.jpg") },
		Playback:    func(_ context.Context, t store.Task) (ui.Playback, bool) { return at.playback(t.ID) },
	})
}

// readers are those who want the news of events.
func (b *beside) readers() []*notify.Wakes {
	if b.server == nil {
		return []*notify.Wakes{b.hookWakes}
	}
	return []*notify.Wakes{b.hookWakes, b.feedWakes}
}

// run goes on until ctx is done, also when nothing is served any more.
func (b *beside) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		select {
		case <-ctx.Done():
		case <-b.begun: // before, there may be no tables
			_ = b.hooks.Run(ctx) // it ends with ctx alone
		}
	})
	all.Go(func() { b.alarms.run(ctx) })
	if b.o.debug != "" {
		all.Go(func() { b.profiles(ctx) })
	}
	if b.server == nil {
		return
	}
	all.Go(func() { _ = b.feed.Run(ctx) })
	all.Go(func() { _ = b.board.Run(ctx) })
	all.Go(func() { b.keepUploads(ctx) })
	b.log.Info("listening for people and programs", zap.String("address", b.o.address(b.listener)))
	if err := b.server.Serve(ctx, b.listener); err != nil {
		b.fell <- &usererr.Error{Kind: usererr.Failure, Text: "the web server ended: " + usererr.FirstLine(err.Error())}
	}
	<-ctx.Done()
}

func (b *beside) profiles(ctx context.Context) {
	err := debug.Run(ctx, debug.Options{Addr: b.o.debug, Ready: func(a net.Addr) { b.log.Info("serving profiles", zap.Stringer("address", a)) }})
	if err != nil {
		b.log.Error("profiles cannot be served", zap.Error(err))
	}
}

// uploadsEvery is how often uploads are tidied.
const uploadsEvery = 5 * time.Minute

// keepUploads hands over what was complete when the process before this one ended,
// and deletes what nobody needs any more.
func (b *beside) keepUploads(ctx context.Context) {
	if err := b.uploads.Recover(ctx); err != nil && ctx.Err() == nil {
		b.log.Warn("uploads cannot be handed over yet", zap.Error(err))
	}
	failed := false
	for pause(ctx, uploadsEvery) == nil {
		done, err := b.uploads.CleanUp(ctx)
		if n := done.Expired + done.Released; n > 0 {
			b.log.Info("uploads tidied", zap.Int("removed", n), zap.Int64("bytes", done.Bytes))
		}
		if err != nil && !failed && ctx.Err() == nil {
			b.log.Warn("not all uploads can be tidied", zap.Error(err))
		}
		failed = err != nil
	}
	if err := b.uploads.Close(); err != nil {
		b.log.Warn("uploads did not end", zap.Error(err))
	}
}

// slotsOf is how many tasks this process works on at once, by stage.
func slotsOf(e *engine) map[string]int {
	slots := make(map[string]int)
	for _, s := range e.stages {
		slots[s.Name] = max(s.Workers, 0)
	}
	return slots
}
