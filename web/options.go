package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

// Subscription gives events as they happen. A *eventfeed.Subscription does.
type Subscription interface {
	// Next waits for events. Where its context has ended it may be called again
	// with another; after any other error there will be no more.
	Next(ctx context.Context) ([]store.Event, error)
	Close()
}

// Options say what is served. Store and Guard must be set.
type Options struct {
	Store *store.Store
	Guard *access.Guard

	// Subscribe tells of events after one, those that keep wants. Default:
	// there are no streams.
	Subscribe func(after int64, keep func(store.Event) bool) Subscription
	// Webhooks are managed under /api/v1/webhooks. Default: there are none.
	Webhooks *webhook.Webhooks
	// Published is the directory that the pipeline publishes in, in which each
	// task has one by its id. Default: nothing is served.
	Published string
	// CheckSource refuses a source that somebody wants to submit: an error that
	// matches [access.ErrScope] as forbidden, any other as invalid; its text is
	// shown. Default: http and https URLs for everybody, absolute paths and file
	// URLs for the scope admin, because the pipeline would publish any of this
	// host's videos.
	CheckSource func(who access.Principal, source string) error

	// Uploads has /api/v1/uploads and all below, its whole address as BasePath
	// says; see [Server.UploadsPath]. Default: there are no uploads.
	Uploads http.Handler
	// Dashboard has / and all below that nothing else has, without BasePath. It
	// draws GET /login, which has a form that posts the field secret, and next
	// for where to go then. After a failure that has the query failed=wrong, or
	// failed=limited and wait= for so many seconds. What it has under /assets/, and
	// POST /theme, is for everybody. GET /live stays open for as long as a page is,
	// and counts as a stream. Default: there is none.
	Dashboard http.Handler
	// Metrics has /metrics; Healthy and Ready have /healthz and /readyz, for
	// everybody: whether somebody is known says [access.From]. Default: they are
	// not there.
	Metrics, Healthy, Ready http.Handler

	// Wrap is put around what is served to somebody who is known: for tracing.
	// Default: nothing.
	Wrap func(http.Handler) http.Handler

	// BasePath is the path that everything is under, such as "/cuelight".
	// Default: none.
	BasePath string
	// Origins are other origins whose pages may change things, such as
	// "https://studio.example" where a proxy serves this under that name and
	// does not hand on the Host header. Default none.
	Origins []string

	// CertFile and KeyFile are for TLS; they are read again when they change.
	// Insecure allows other addresses than loopback without TLS.
	CertFile, KeyFile string
	Insecure          bool
	// Grace is how long requests may go on when Serve is to end. Default 10 s.
	Grace time.Duration
	// Abort, when closed, makes Serve close all connections and return. Default: Serve ends by its context alone.
	Abort <-chan struct{}

	// Streams is how many streams of events may be open, those of the dashboard's
	// pages among them, and StreamsEach for one principal. Default 1000, and three
	// quarters of Streams.
	Streams, StreamsEach int
	// Connections is how many may be open at once, whoever has them; more are
	// closed as they come. Each takes memory and a descriptor, which what else this
	// process does needs, too. Those of streams count, too. Default 5000.
	// ConnectionsEach is that for one address, of IPv6 for one network of 64 bits.
	// Default a tenth of Connections. Loopback addresses and Proxies, from which
	// everybody may come, have no limit of their own.
	Connections, ConnectionsEach int
	Proxies                      []netip.Prefix
	// RequestsEach is how many requests of one principal may ask the database at
	// the same time. More wait for up to 5 s, streams for up to 30 s, and are then
	// answered with 429. It should be less than the connections that Store has, so
	// that nobody can keep them from all others. Default 4.
	RequestsEach int
	// Ping is how often a stream in which nothing happens shows that it is
	// alive. Default 15 s.
	Ping time.Duration

	// Observe hears of each request when it is over. Trouble hears what went
	// wrong on this side, of which a client was told no details. ErrorLog is
	// that of the http.Server. They must not block. Default: nobody.
	Observe  func(Request)
	Trouble  func(route string, err error)
	ErrorLog *log.Logger
}

// Request is what is known of a request when it is over.
type Request struct {
	Method string
	Route  string // the pattern, such as "GET /api/v1/tasks/{id}"
	Who    string // the principal; empty for somebody unknown
	Status int
	Bytes  int64 // of the answer's body
	Took   time.Duration
	// Stream says that the response was a stream of events, whose Took says how long it was open.
	Stream bool
}

func (o Options) withDefaults() (Options, error) {
	if o.Store == nil || o.Guard == nil {
		return o, errors.New("a store and a guard are needed")
	}
	if b := o.BasePath; b != "" && (!strings.HasPrefix(b, "/") || b == "/" || path.Clean(b) != b || strings.ContainsAny(b, "{} ?#%")) {
		return o, fmt.Errorf("base path %q: it begins with a slash, does not end with one, and is plain", b)
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return o, errors.New("a certificate needs its key, and a key its certificate")
	}
	o.Grace, o.Ping = cmp.Or(o.Grace, 10*time.Second), cmp.Or(o.Ping, 15*time.Second)
	o.Streams, o.Connections = cmp.Or(o.Streams, 1000), cmp.Or(o.Connections, 5000)
	o.ConnectionsEach = cmp.Or(o.ConnectionsEach, max(o.Connections/10, 1))
	o.RequestsEach = max(cmp.Or(o.RequestsEach, 4), 1)
	o.StreamsEach = cmp.Or(o.StreamsEach, max(o.Streams*3/4, 1))
	if o.CheckSource == nil {
		o.CheckSource = CheckSource
	}
	if o.Wrap == nil {
		o.Wrap = func(h http.Handler) http.Handler { return h }
	}
	if o.Observe == nil {
		o.Observe = func(Request) {}
	}
	if o.Trouble == nil {
		o.Trouble = func(string, error) {}
	}
	if o.ErrorLog == nil {
		o.ErrorLog = log.New(discard{}, "", 0)
	}
	return o, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
