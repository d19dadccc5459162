package webhook

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/cuelight/cuelight/internal/ssrf"
	"github.com/cuelight/cuelight/store"
)

// Store reads the pipeline. [store.Store] implements it.
type Store interface {
	Events(ctx context.Context, q store.EventQuery) ([]store.Event, error)
	EventWatermark(ctx context.Context) (int64, error)
	Get(ctx context.Context, id store.ID) (store.Task, error)
	History(ctx context.Context, id store.ID) ([]store.Attempt, error)
}

// Options configure [New].
type Options struct {
	// DB has the tables, and Store reads the pipeline. Both are required.
	DB    store.DB
	Store Store
	// Graph is that of the pipeline. Default [store.Video].
	Graph store.Graph

	// Allow lists networks that may be called although their addresses are not public
	// or are this host's. Default none.
	Allow []netip.Prefix
	// AllowHTTP permits the scheme http for all addresses. By default it is permitted
	// only if the host is an address in Allow, or localhost and Allow contains it.
	AllowHTTP bool
	// Dashboard is the public address of the dashboard, which messages of chat formats link to. Default none.
	Dashboard string
	// UserAgent is the header User-Agent. Default "Cuelight-Webhooks".
	UserAgent string

	// Timeout limits one attempt, from the name lookup to the response's header.
	// Default 20 s.
	Timeout time.Duration
	// Concurrency is the number of simultaneous calls; default 16. PerWebhook is the
	// number of them to one receiver; default 4.
	Concurrency, PerWebhook int
	// Grace is how long running calls may take after Run's context ends. Default 5 s;
	// negative for none.
	Grace time.Duration
	// Abort ends the grace when it is closed.
	Abort <-chan struct{}
	// Retention is how long delivered and suppressed deliveries are kept; default
	// 7 days. DeadRetention is how long dead ones are; default 30 days. Negative for ever.
	Retention, DeadRetention time.Duration

	// Wake signals that new events may exist. The outbox is also polled every second.
	Wake <-chan struct{}
	// BeforeSend is called before deliveries are sent, once for those that are sent together.
	BeforeSend func(context.Context)
	// OnDelivery is called with the result of each attempt. It must not block.
	OnDelivery func(DeliveryResult)
	// OnDeleted is called with the number of deliveries whose retention was over. It must not block.
	OnDeleted func(deliveries int)
	// OnError is called once when Run is blocked or partly blocked by an error, for
	// example of the database, and with nil when that is over. It must not block.
	OnError func(error)

	// For tests.
	resolver      *net.Resolver
	rootCAs       *x509.CertPool
	hostAddresses func() ([]net.Addr, error)
	schedule      []time.Duration
	leaseDuration time.Duration
	pollInterval  time.Duration
}

// Outcome is the outcome of an attempt to deliver.
type Outcome string

// The outcomes. Only Failed is not final.
const (
	// Delivered means that the receiver accepted the delivery.
	Delivered Outcome = "delivered"
	// Failed means that the attempt failed and another one follows.
	Failed Outcome = "failed"
	// Dead means that the last attempt failed.
	Dead Outcome = "dead"
	// Gone means that the receiver answered 410. Its webhook is disabled.
	Gone Outcome = "gone"
	// Suppressed is an alert within the cooldown of another.
	Suppressed Outcome = "suppressed"
	// Missed means that an unknown number of events was deleted before they were read.
	Missed Outcome = "missed"
)

// DeliveryResult is the argument of Options.OnDelivery.
type DeliveryResult struct {
	Webhook  store.ID
	Type     string // of the event
	Outcome  Outcome
	Status   int           // of the response; 0 if there was none
	Duration time.Duration // until the response
}

// Errors of the methods, for [errors.Is]. Other errors come from the database.
var (
	// ErrNotFound means that the pipeline has no such webhook or delivery.
	ErrNotFound = errors.New("no such webhook or delivery")
	// ErrInvalid means that an argument is invalid. The message says why.
	ErrInvalid = errors.New("invalid webhook")
)

// Webhooks manages the webhooks of one pipeline. Several processes can do so.
type Webhooks struct {
	options Options
	db      store.DB
	policy  ssrf.Policy
	client  *client
}

// New does not access the database.
func New(o Options) *Webhooks {
	if o.Graph.Name() == "" {
		o.Graph = store.Video()
	}
	o.UserAgent = cmp.Or(o.UserAgent, "Cuelight-Webhooks")
	o.Timeout = cmp.Or(o.Timeout, 20*time.Second)
	o.Concurrency = cmp.Or(o.Concurrency, 16)
	o.PerWebhook = cmp.Or(o.PerWebhook, 4)
	o.Grace = cmp.Or(o.Grace, 5*time.Second)
	o.Retention = cmp.Or(o.Retention, 7*24*time.Hour)
	o.DeadRetention = cmp.Or(o.DeadRetention, 30*24*time.Hour)
	o.leaseDuration = cmp.Or(o.leaseDuration, leaseDuration)
	o.pollInterval = cmp.Or(o.pollInterval, time.Second)
	if o.schedule == nil {
		o.schedule = retrySchedule()
	}
	if o.BeforeSend == nil {
		o.BeforeSend = func(context.Context) {}
	}
	if o.OnDelivery == nil {
		o.OnDelivery = func(DeliveryResult) {}
	}
	if o.OnDeleted == nil {
		o.OnDeleted = func(int) {}
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	policy := ssrf.Policy{Allow: o.Allow, HostAddresses: o.hostAddresses}
	return &Webhooks{options: o, db: o.DB, policy: policy, client: newClient(o, policy)}
}

// pipeline returns the name of the pipeline.
func (w *Webhooks) pipeline() string { return w.options.Graph.Name() }

// WithStore returns the same webhooks on the transaction of a store.
func (w *Webhooks) WithStore(st *store.Store) *Webhooks {
	bound := *w
	bound.options.DB, bound.options.Store, bound.db = st.DB(), st, st.DB()
	return &bound
}
