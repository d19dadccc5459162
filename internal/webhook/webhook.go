package webhook

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/cuelight/cuelight/internal/ssrf"
	"github.com/cuelight/cuelight/store"
)

// Store is what is read of the pipeline. A *store.Store has it.
type Store interface {
	Events(ctx context.Context, q store.EventQuery) ([]store.Event, error)
	EventWatermark(ctx context.Context) (int64, error)
	Get(ctx context.Context, id store.ID) (store.Task, error)
	History(ctx context.Context, id store.ID) ([]store.Attempt, error)
}

// Options say what is delivered, and how.
type Options struct {
	// DB has the tables; Store reads the pipeline in it. Both are needed.
	DB    store.DB
	Store Store
	// Pipeline is its name. Default "video".
	Pipeline string

	// Allow are networks that may be called although their addresses are not
	// public, or are this host's. Default none.
	Allow []netip.Prefix
	// AllowHTTP lets webhooks have http addresses. Without it only those may
	// whose host is an address in Allow, or localhost where that is in Allow.
	AllowHTTP bool
	// Agent is the header User-Agent. Default "Cuelight-Webhooks".
	UserAgent string

	// Timeout is for one delivery, from looking up the name to the end of the
	// answer's headers. Default 20 s.
	Timeout time.Duration
	// Concurrency is how many deliveries are on their way at once; default 16.
	// PerWebhook is how many of them to one receiver; default 4.
	Concurrency, PerWebhook int
	// Grace is how long deliveries that are on their way when Run is told to
	// stop may take to arrive. Default 5 s; negative for none.
	Grace time.Duration
	// Abort, when it is closed, ends the Grace at once.
	Abort <-chan struct{}
	// Keep is how long deliveries that arrived, or were suppressed, stay in the
	// list; default 7 days. KeepDead is how long those do that could not be
	// delivered; default 30 days.
	Retention, DeadRetention time.Duration

	// Wake says that there may be new events. Without it, and beside it, the
	// outbox is looked at every second.
	Wake <-chan struct{}
	// Observe hears what became of each delivery. It must not block.
	OnDelivery func(DeliveryResult)
	// Trouble hears, once, that Run cannot go on for now, or not with all of it,
	// because the database is away for instance, and why; and nil when that is
	// over. It must not block.
	OnError func(error)

	// For tests.
	resolver      *net.Resolver
	rootCAs       *x509.CertPool
	hostAddresses func() ([]net.Addr, error)
	schedule      []time.Duration
	leaseDuration time.Duration
	pollInterval  time.Duration
}

// Outcome is what became of a delivery.
type Outcome string

// The outcomes. A delivery may fail several times; all others are an end.
const (
	Delivered  Outcome = "delivered"
	Failed     Outcome = "failed"     // will be tried again
	Dead       Outcome = "dead"       // was tried often enough
	Gone       Outcome = "gone"       // the receiver wants nothing more: its webhook was disabled
	Suppressed Outcome = "suppressed" // an alert within the cooldown of another
	Missed     Outcome = "missed"     // events were deleted before they were looked at, nobody knows how many
)

// Observation is what Options.Observe hears.
type DeliveryResult struct {
	Webhook  store.ID
	Type     string // of the event
	Outcome  Outcome
	Status   int           // of the answer; 0 if there was none
	Duration time.Duration // to be answered
}

// What the methods return, to be matched with [errors.Is]. Anything else is the
// database's own error.
var (
	// ErrNotFound: there is no such webhook, or delivery, in this pipeline.
	ErrNotFound = errors.New("no such webhook or delivery")
	// ErrInvalid: an address or a type that cannot be. The error says why.
	ErrInvalid = errors.New("invalid webhook")
)

// Webhooks are those of one pipeline. Any number of processes may have them.
type Webhooks struct {
	options Options
	db      store.DB
	policy  ssrf.Policy
	client  *client
}

// New does not touch the database.
func New(o Options) *Webhooks {
	defaultTo(&o.Pipeline, "video")
	defaultTo(&o.UserAgent, "Cuelight-Webhooks")
	defaultTo(&o.Timeout, 20*time.Second)
	defaultTo(&o.Concurrency, 16)
	defaultTo(&o.PerWebhook, 4)
	defaultTo(&o.Grace, 5*time.Second)
	defaultTo(&o.Retention, 7*24*time.Hour)
	defaultTo(&o.DeadRetention, 30*24*time.Hour)
	defaultTo(&o.leaseDuration, leaseDuration)
	defaultTo(&o.pollInterval, time.Second)
	if o.schedule == nil {
		o.schedule = retrySchedule()
	}
	if o.OnDelivery == nil {
		o.OnDelivery = func(DeliveryResult) {}
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	policy := ssrf.Policy{Allow: o.Allow, HostAddresses: o.hostAddresses}
	return &Webhooks{options: o, db: o.DB, policy: policy, client: newClient(o, policy)}
}

// In is the same webhooks in the transaction of a store: what is done to them
// becomes true with it.
func (w *Webhooks) WithStore(st *store.Store) *Webhooks {
	in := *w
	in.options.DB, in.options.Store, in.db = st.DB(), st, st.DB()
	return &in
}

func defaultTo[T comparable](option *T, value T) {
	var zero T
	if *option == zero {
		*option = value
	}
}
