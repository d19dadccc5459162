package daemon

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
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/metrics"
	"github.com/cuelight/cuelight/internal/metrics/health"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/standby"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
	"github.com/cuelight/cuelight/web/ui"
)

// services are what a daemon does besides its work: webhooks and alerts, and if it
// listens, the API, the dashboard, uploads and metrics.
type services struct {
	d *Daemon

	webhooks     *webhook.Webhooks
	webhookWakes *notify.Wakes
	alerts       alertChecks
	workStarted  chan struct{} // closed when the workers are registered
	failed       chan error    // receives why the web server has ended by itself
	metrics      *metrics.Metrics
	wakeLatency  wakeLatency

	// The rest is nil unless the daemon listens.
	listener  net.Listener // run closes it
	server    *web.Server
	dashboard *ui.UI
	feed      *eventfeed.Feed
	feedWakes *notify.Wakes
	lists     *store.Store    // for what clients read: on standby, or on the primary
	standby   *standby.Router // nil without a standby
	uploads   *upload.Uploads

	playback         playback.Addresses  // paths of published videos, at PublicURL if that is known
	coordinator      *remote.Coordinator // of remote workers
	coordinatorWakes *notify.Wakes
	refusals         *refusals
	keyWakes         *notify.Wakes
}

// deliveryValid is how long the addresses of videos in webhooks are valid: a day longer than deliveries are retried.
const deliveryValid = 4 * 24 * time.Hour

// newServices prepares the services. Their run, or an error of this, frees what they hold.
func (d *Daemon) newServices(ctx context.Context) (s *services, err error) {
	s = &services{
		d: d, webhookWakes: notify.NewWakes(), feedWakes: notify.NewWakes(), coordinatorWakes: notify.NewWakes(),
		keyWakes:    notify.NewWakes(),
		workStarted: make(chan struct{}), failed: make(chan error, 1),
	}
	graph := d.DB.Store.Graph()
	s.openLists()
	s.metrics = metrics.New(metrics.Options{
		Graph: graph, Slots: d.Engine.slots(), Version: d.Engine.Version, Pool: d.DB.Pool,
		Dirs: []string{d.Config.DataDir, d.Config.PublishDir}, WebhookTypes: webhook.Types(), KeepEvents: d.Engine.KeepEvents,
		Database: metrics.NewDatabase(s.metricsDB(), graph),
	})
	if s.playback, err = d.newPlayback(); err != nil {
		return nil, err
	}
	o := d.webhookOptions()
	o.DB, o.Wake, o.Abort = d.DB.Pool, s.webhookWakes.C(), d.Engine.Abort
	forDeliveries := s.playback
	forDeliveries.Valid = deliveryValid
	o.Store = playback.Store{Store: d.DB.Store, Addresses: forDeliveries}
	o.BeforeSend = s.requireReplay
	o.OnDelivery = func(r webhook.DeliveryResult) { s.metrics.ObserveDelivery(r.Type, string(r.Outcome)) }
	o.OnDeleted, o.Retention, o.DeadRetention = s.metrics.ObserveDeletedDeliveries, d.KeepDeliveries, d.KeepDeadDeliveries
	o.OnError = failureLogger(d.Log, "webhooks cannot be delivered", "webhooks are delivered again")
	s.webhooks = webhook.New(o)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	s.alerts = alertChecks{
		webhooks: s.webhooks, log: d.Log, host: host, listenerHealthy: d.listenerHealthy,
		disks: health.New(health.Options{Checks: d.diskChecks()}),
	}
	if d.HTTP.Listen == "" {
		return s, nil
	}
	return s, s.listen(ctx)
}

// webhookOptions returns the options that delivery and the API have in common.
func (d *Daemon) webhookOptions() webhook.Options {
	return webhook.Options{
		Graph: d.DB.Store.Graph(), UserAgent: "Cuelight/" + d.Engine.Version,
		Allow: d.HTTP.WebhookAllow, AllowHTTP: d.HTTP.WebhookHTTP, Dashboard: d.HTTP.PublicURL,
	}
}

// diskChecks check the disks that the work writes to.
func (d *Daemon) diskChecks() []health.Check {
	reserve := max(d.Config.Reserve, 0)
	return []health.Check{
		health.Disk("data", d.Config.DataDir, reserve),
		health.Disk("published", d.Config.PublishDir, reserve),
	}
}

// listen creates what is served, and opens the listening socket.
func (s *services) listen(ctx context.Context) (err error) {
	d, reads := s.d, &s.d.DB.Reads
	keys := &access.KeyCache{
		Store: access.NewKeyStore(reads.ReservedStore.DB()), Wakes: s.keyWakes,
		Channel: d.DB.Store.Graph().ControlChannel(), IsListening: d.listening.Load,
	}
	guard, err := d.HTTP.guard(d.Config.DataDir, keys, d.Log)
	if err != nil {
		return err
	}
	s.feed = eventfeed.New(eventfeed.Options{
		Reader: eventReader{playback.Store{Store: reads.Store, Addresses: s.playback}, s.standby}, Wake: s.feedWakes,
		OnError: failureLogger(d.Log, "events cannot be read", "events are read again"),
	})
	if s.uploads, err = upload.New(d.uploadOptions(guard)); err != nil {
		return err
	}
	if err := s.newCoordinator(); err != nil {
		return err
	}
	if s.dashboard, err = s.newDashboard(); err == nil {
		s.server, err = web.New(s.webOptions(guard))
	}
	if err != nil {
		err = &usererr.Error{Kind: usererr.Usage, Text: err.Error()} // only flags can be wrong
	} else {
		s.listener, err = d.HTTP.bind(ctx)
	}
	if err != nil {
		return errors.Join(err, s.uploads.Close())
	}
	s.metrics.ExportHTTPStreams(s.server.Streams)
	if s.standby != nil {
		s.metrics.ExportStandby(func() (time.Duration, bool) { st := s.standby.Status(); return st.Lag, st.Reason == "" })
	}
	return nil
}

func (d *Daemon) uploadOptions(guard *access.Guard) upload.Options {
	st := d.DB.Reads.Store
	return upload.Options{
		Dir: d.Config.DataDir, BasePath: web.UploadsPath(d.HTTP.BasePath),
		MaxBytes: d.HTTP.MaxUpload, MinFree: cmp.Or(max(d.Config.Reserve, 0), -1),
		Principal:      func(ctx context.Context) string { return access.PrincipalOf(ctx).Name },
		CheckPrincipal: stillAuthorized(guard), IsRevoked: isRevoked(st), Prepare: prepareUpload(st, d.HTTP.MaxSubmissions),
		OnComplete: submitUpload(st, d.Config.Bucket),
		Store:      storeUpload(d.Config.Bucket), Release: releaseUpload(d.Config.Bucket),
		SourceState: uploadSourceState(st, d.Config.Bucket),
		OnError:     func(id string, err error) { d.Log.Warn("upload failed", zap.String("upload", id), zap.Error(err)) },
	}
}

func (s *services) webOptions(guard *access.Guard) web.Options {
	d, reads := s.d, &s.d.DB.Reads
	hooks := d.webhookOptions()
	hooks.DB, hooks.Store = reads.Pool, reads.Store // to manage them; s.webhooks delivers
	o := d.HTTP.webOptions()
	o.MaxRequestsPerPrincipal = max(int(reads.Pool.Config().MaxConns)/2, 1)
	o.Store, o.Reads, o.Guard, o.Webhooks = reads.Store, s.lists, guard, webhook.New(hooks)
	o.Workers, o.Profiles, o.MaxSubmissionsPerUser = s.coordinator, true, d.HTTP.MaxSubmissions
	o.Dashboard, o.Published, o.Uploads, o.Metrics = s.dashboard, d.Config.PublishDir, s.uploads, s.metrics.Handler()
	o.Playback, o.EncryptionKey = &s.playback, d.Config.FindEncryptionKey
	if d.Config.PublishBucket != nil {
		o.OpenPublished = openPublished(d.Config.PublishBucket)
	}
	o.Subscribe = func(after int64, keep func(store.Event) bool) web.Subscription { return s.feed.Subscribe(after, keep) }
	o.Wrap, o.Abort = s.wrap, d.Engine.Abort
	o.Observe = func(r web.Request) { s.metrics.ObserveHTTPRequest(r.Route, r.Status, r.Duration, r.Stream) }
	known := func(r *http.Request) bool { return access.Check(r.Context(), access.Read) == nil }
	loops := []health.Check{health.Loops(d.Engine.watchdog.stuck)}
	o.Healthy = health.New(health.Options{Checks: loops, CanSeeReasons: known})
	o.Ready = health.New(health.Options{Checks: d.readinessChecks(), CanSeeReasons: known})
	o.OnError = func(route string, err error) {
		d.Log.Warn("request failed", zap.String("route", route), zap.Error(err))
	}
	o.ErrorLog = zap.NewStdLog(d.Log.WithOptions(zap.IncreaseLevel(zap.ErrorLevel)))
	return o
}

func (d *Daemon) readinessChecks() []health.Check {
	return append([]health.Check{
		{Name: "database", Run: d.DB.Reads.Reserved.Ping},
		{Name: "schema", Run: d.DB.Reads.ReservedStore.Check},
		health.Listening(d.listenerHealthy),
	}, d.diskChecks()...)
}

// wakes returns the readers of the listener's notifications.
func (s *services) wakes() []*notify.Wakes {
	if s.server == nil {
		return []*notify.Wakes{s.webhookWakes}
	}
	return []*notify.Wakes{s.webhookWakes, s.feedWakes, s.coordinatorWakes, s.keyWakes}
}

// run runs the services until ctx is done, whatever becomes of the web server.
func (s *services) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.workStarted: // until then there may be no tables
			_ = s.webhooks.Run(ctx) // returns only what ctx says
		}
	})
	all.Go(func() { s.alerts.run(ctx) })
	if s.d.HTTP.DebugListen != "" {
		all.Go(func() {
			if err := serveProfiles(ctx, s.d.HTTP.DebugListen, s.d.Log); err != nil {
				s.d.Log.Error("profiles cannot be served", zap.Error(err))
			}
		})
	}
	if s.server == nil {
		return
	}
	if s.standby != nil {
		all.Go(func() { _ = s.standby.Run(ctx) }) // returns only what ctx says
	}
	all.Go(func() { _ = s.feed.Run(ctx) })
	all.Go(func() { _ = s.dashboard.Run(ctx) })
	all.Go(func() { s.maintainUploads(ctx) })
	all.Go(func() { s.refusals.run(ctx) })
	all.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.workStarted:
		}
		_ = s.coordinator.Run(ctx) // returns only what ctx says
	})
	s.d.Log.Info("serving HTTP", zap.String("address", s.d.HTTP.url(s.listener)))
	if err := s.server.Serve(ctx, s.listener); err != nil {
		s.failed <- &usererr.Error{Text: "the web server ended: " + usererr.FirstLine(err.Error())}
	}
	<-ctx.Done()
}

// uploadCleanupInterval is how often uploads that are not needed any more are deleted.
const uploadCleanupInterval = 5 * time.Minute

// maintainUploads submits complete uploads that have no task yet, such as those of the last
// process, and deletes those that are not needed any more.
func (s *services) maintainUploads(ctx context.Context) {
	log := s.d.Log
	report := failureLogger(log,
		"some uploads cannot be submitted or deleted", "all uploads can be submitted and deleted again")
	for ok := true; ok; ok = ctxsleep.For(ctx, uploadCleanupInterval) == nil {
		done, err := s.uploads.CleanUp(ctx)
		if n := done.Expired + done.DeletedFinished; n > 0 {
			log.Info("uploads deleted", zap.Int("removed", n), zap.Int64("bytes", done.Bytes))
		}
		if ctx.Err() == nil {
			report(err)
		}
	}
	if err := s.uploads.Close(); err != nil {
		log.Warn("uploads did not end", zap.Error(err))
	}
}
