package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/webhook"
	"github.com/cuelight/cuelight/store"
)

// Subscription returns events as they happen. A *eventfeed.Subscription does.
type Subscription interface {
	// Next waits for events. If its context ends, it may be called again with another; any other error is permanent.
	Next(ctx context.Context) ([]store.Event, error)
	Close()
}

// PublishedFile is an open published file.
type PublishedFile struct {
	io.ReadSeekCloser
	Modified time.Time
	ETag     string // with quotes; it changes with the content
}

// Options configure a [Server]. Store and Guard are required.
type Options struct {
	Store *store.Store
	Guard *access.Guard
	// Reads is what tasks, lists and counts are read from; events, and what a request changes, are those of Store.
	// Default: Store.
	Reads *store.Store

	// Subscribe returns the events after an id for which keep returns true. Default: no streams.
	Subscribe func(after int64, keep func(store.Event) bool) Subscription
	// Webhooks are managed under /api/v1/webhooks. Default: no such routes.
	Webhooks *webhook.Webhooks
	// Published is the directory to which the pipeline publishes; each task has a subdirectory named by its id.
	// Default: nothing is served.
	Published string
	// OpenPublished opens a published file that is not in a directory, by the name that it would have in Published. It
	// returns fs.ErrNotExist if there is none. Reading ends with ctx. Default: the files in Published are served.
	OpenPublished func(ctx context.Context, name string) (PublishedFile, error)
	// EncryptionKey returns the key of an encrypted video with an ID, or store.ErrNotFound; see video.Config.FindEncryptionKey.
	// Default: there are none.
	EncryptionKey func(task store.ID, keyID string) ([16]byte, error)
	// Playback has the keys that sign addresses with which anybody can watch a published video; their URL is PublicURL. Default:
	// tasks say nothing of how they are watched, and public videos are not served.
	Playback *playback.Addresses
	// CheckSource refuses a submitted source: an error that matches [access.ErrForbidden] as forbidden, any other as
	// invalid. The client gets its text. Default: [CheckSource].
	CheckSource func(who access.Principal, source string) error

	// Profiles serves /api/v1/profiles, and applies profiles to submissions: their params must then be those of videos,
	// see [video.Params]. Default: params are not checked.
	Profiles bool

	// MaxSubmissionsPerUser limits the tasks that are submitted for one user per minute. Default: no limit.
	MaxSubmissionsPerUser int

	// Uploads serves /api/v1/uploads and everything below, see [UploadsPath]. Default: no uploads.
	Uploads http.Handler
	// Workers serves the API for remote workers, /api/v1/worker and everything below; its paths do not include that.
	// Default: no remote workers.
	Workers http.Handler
	// Dashboard serves everything that no other route does, with paths that do not include BasePath. Its GET /login
	// has a form that posts the field secret, and next for the page to open afterwards. After a failure, /login has
	// the query failed=wrong, or failed=limited and wait= with a number of seconds. Its /assets/ and POST /theme need
	// no principal. A request of GET /live stays open as long as its page and counts as a stream. Default: none.
	Dashboard http.Handler
	// Metrics serves /metrics. Healthy and Ready serve /healthz and /readyz without authentication; they can tell a
	// known principal by [access.PrincipalOf]. Default: no such routes.
	Metrics, Healthy, Ready http.Handler

	// Wrap wraps the handler of requests with a principal, for tracing. Default: none.
	Wrap func(http.Handler) http.Handler

	// BasePath is a prefix of all paths, such as "/cuelight". Default: none.
	BasePath string
	// PublicURL is the address at which clients reach this server through a proxy, such as "https://studio.example", with the path
	// of the proxy if it has one. The addresses of published videos begin with it, and its pages may change things if the proxy
	// does not pass on the Host header. Default: the host of each request, and BasePath.
	PublicURL string

	// CertFile and KeyFile enable TLS. They are read again when they change. Insecure allows addresses other than
	// loopback without TLS.
	CertFile, KeyFile string
	Insecure          bool
	// Grace is how long requests may take to end when Serve's context is done. Default 10 s.
	Grace time.Duration
	// Abort, when closed, makes Serve close all connections and return. Default: never.
	Abort <-chan struct{}

	// MaxStreams is how many streams may be open, including those of the dashboard's pages, and
	// MaxStreamsPerPrincipal for one principal. Default 1000, and three quarters of MaxStreams.
	MaxStreams, MaxStreamsPerPrincipal int
	// MaxConnections is how many connections may be open, including those of streams; the server closes more
	// connections when they arrive. Each takes memory and a file descriptor. Default 5000.
	// MaxConnectionsPerAddress is the limit for one address, of IPv6 for one /64 network. Default a tenth of
	// MaxConnections. It does not apply to loopback addresses and Proxies, which connect for many clients.
	MaxConnections, MaxConnectionsPerAddress int
	Proxies                                  []netip.Prefix
	// MaxRequestsPerPrincipal is how many requests of one principal may use the database at the same time. More
	// requests wait for up to 5 s, streams for up to 30 s, and then get 429. It should be less than the number of
	// Store's connections, so that no principal can block all others. Default 4.
	MaxRequestsPerPrincipal int
	// PingInterval is how often an idle stream sends a comment. Default 15 s.
	PingInterval time.Duration

	// Observe is called for each request when it ends. OnError is called for errors of this server, whose details
	// the client does not get. ErrorLog is the log of the http.Server. They must not block. Default: ignored.
	Observe  func(Request)
	OnError  func(route string, err error)
	ErrorLog *log.Logger
}

// Request describes a request that has ended.
type Request struct {
	Method    string
	Route     string // the pattern, such as "GET /api/v1/tasks/{id}"
	Principal string // its name; empty without authentication
	Status    int
	Bytes     int64 // of the response's body
	Duration  time.Duration
	// Stream says that the response was a stream of events; its Duration says how long it was open.
	Stream bool
}

func (o Options) withDefaults() (Options, error) {
	switch b := o.BasePath; {
	case o.Store == nil || o.Guard == nil:
		return o, errors.New("options need a store and a guard")
	case b != "" && (!strings.HasPrefix(b, "/") || b == "/" || path.Clean(b) != b || strings.ContainsAny(b, "{} ?#%")):
		return o, fmt.Errorf("base path %q must start with a slash, must not end with one, and must need no escaping", b)
	case (o.CertFile == "") != (o.KeyFile == ""):
		return o, errors.New("a certificate and its key must be given together")
	}
	o.Grace, o.PingInterval = cmp.Or(o.Grace, 10*time.Second), cmp.Or(o.PingInterval, 15*time.Second)
	o.MaxStreams, o.MaxConnections = cmp.Or(o.MaxStreams, 1000), cmp.Or(o.MaxConnections, 5000)
	o.MaxConnectionsPerAddress = cmp.Or(o.MaxConnectionsPerAddress, max(o.MaxConnections/10, 1))
	o.MaxRequestsPerPrincipal = max(cmp.Or(o.MaxRequestsPerPrincipal, 4), 1)
	o.MaxStreamsPerPrincipal = cmp.Or(o.MaxStreamsPerPrincipal, max(o.MaxStreams*3/4, 1))
	o.ErrorLog = cmp.Or(o.ErrorLog, log.New(io.Discard, "", 0))
	o.Reads = cmp.Or(o.Reads, o.Store)
	if o.CheckSource == nil {
		o.CheckSource = CheckSource
	}
	if o.Wrap == nil {
		o.Wrap = func(h http.Handler) http.Handler { return h }
	}
	if o.Observe == nil {
		o.Observe = func(Request) {}
	}
	if o.OnError == nil {
		o.OnError = func(string, error) {}
	}
	return o, nil
}
