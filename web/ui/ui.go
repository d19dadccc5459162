package ui

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Reader is what the dashboard reads. A *store.Store has it.
type Reader interface {
	Graph() store.Graph
	Get(ctx context.Context, id store.ID) (store.Task, error)
	FindNewest(ctx context.Context, text string) (store.ID, error)
	History(ctx context.Context, id store.ID) ([]store.Attempt, error)
	Replaced(ctx context.Context, id store.ID) ([]store.ID, error)
	Page(ctx context.Context, q store.BoardQuery) (store.Page, error)
	Stats(ctx context.Context) (store.Stats, error)
	Workers(ctx context.Context, all bool) ([]store.Worker, error)
	StoppedWorkers(ctx context.Context, before store.ID, limit int) ([]store.Worker, error)
	Pauses(ctx context.Context) ([]store.Pause, error)
	DeadGroups(ctx context.Context, f store.DeadFilter, limit int) (store.DeadGroups, error)
	DeadLetters(ctx context.Context, f store.DeadFilter, after store.ID, limit int) ([]store.DeadStage, store.ID, error)
	CountDead(ctx context.Context, f store.DeadFilter) (n int, more bool, err error)
	Latency(ctx context.Context, q store.LatencyQuery) (store.Latency, error)
}

// Actions is what people can do. Who does it is in the context, as whoever let
// the request in has put it there. Errors are shown to them; those of package
// store and [ErrForbidden] are known.
type Actions interface {
	Submit(ctx context.Context, s store.Submission) (store.ID, error)
	// Override puts a new task in the place of one, and returns its id.
	Override(ctx context.Context, old store.ID, by store.Submission) (store.ID, error)
	Retry(ctx context.Context, id store.ID, from string) error
	RetryDead(ctx context.Context, f store.DeadFilter, o store.RetryAllOptions) (store.RetryAllResult, error)
	Cancel(ctx context.Context, id store.ID) error
	Pause(ctx context.Context, p store.Pause) error
	Resume(ctx context.Context, p store.Pause) error
	DrainWorker(ctx context.Context, worker store.ID) error
}

// Viewer is who looks.
type Viewer struct {
	Name    string
	Submit  bool // may add videos
	Operate bool // may do everything else that [Actions] has
}

// Playback is where a published video is.
type Playback struct {
	HLS, DASH string // of the master playlist and the manifest; either may be empty
	Poster    string
}

// Subscription gives events as they happen. A *feed.Subscription has it.
type Subscription interface {
	// Next waits for events, and returns an error when there will be no more.
	Next(ctx context.Context) ([]store.Event, error)
	Close()
}

// Options says what the dashboard shows. Only Store must be set.
type Options struct {
	Store Reader
	// Actions does what people ask for. Without it they can only look.
	Actions Actions
	// Subscribe tells of events from now on, those that keep wants; it is called
	// when somebody looks, and what it returns is closed when nobody does. Default:
	// open pages are read anew every two seconds.
	Subscribe func(keep func(store.Event) bool) Subscription
	// Viewer says who a request is from. Default: somebody without a name who
	// may do everything.
	Viewer func(ctx context.Context) Viewer
	// WakeUp says how long work lately waited that waited for nothing but the news
	// of it, as the event Started of package stages says with Woken. Default: the
	// board does not say.
	WakeLatency func(within time.Duration) store.Percentiles
	// Poster is the address of a task's picture. It is called for each row of a
	// board. Default: there is none.
	Poster func(t store.Task) (address string, ok bool)
	// Playback says where a task's video can be played, also an older version
	// while it is made again. Default: nowhere.
	Playback func(ctx context.Context, t store.Task) (Playback, bool)
	// Uploads is the address that takes uploads by the tus protocol, version
	// 1.0.0. Default: files cannot be uploaded.
	Uploads string
	// Base is the path under which the dashboard is mounted, such as
	// "/cuelight"; its handler gets paths without it. Default: the root.
	Base string
	// Version is shown at the foot of each page.
	Version string
	// Logout is the address that a form is posted to. Default: there is no such
	// button.
	Logout string
	// Login is the address that the login form is posted to, with the fields
	// secret and next, which is where to go then. Whoever takes it sends the
	// browser back to /login with failed=wrong, or failed=limited and wait=, so
	// many seconds. Default: Base + "/login".
	Login string
	// Streams is how many pages can follow what happens at once; others show what
	// there was. Default 1000.
	Streams int
	// Trouble hears what went wrong on this side, of which people are told no
	// details, with the page or the route where that was: of a page that stays
	// wrong once, for as long as it is the same error. It must not block. Default:
	// nobody.
	OnError func(where string, err error)
}

// UI is the dashboard.
type UI struct {
	o      Options
	layout pipelineLayout
	pages  map[string]*template.Template
	assets assets
	mux    *http.ServeMux
	hub    hub

	errors errorLog

	workers  cache[[]store.Worker]
	pauses   cache[[]store.Pause]
	overview cache[overview]
	titles   titleCache
}

// New makes a dashboard. It reads nothing.
func New(o Options) (*UI, error) {
	if o.Store == nil {
		return nil, errors.New("dashboard: no store to read from")
	}
	if o.Streams <= 0 {
		o.Streams = 1000
	}
	if o.Login == "" {
		o.Login = o.Base + "/login"
	}
	if o.Viewer == nil {
		o.Viewer = func(context.Context) Viewer { return Viewer{Submit: true, Operate: true} }
	}
	u := &UI{o: o, layout: newPipelineLayout(o.Store.Graph())}
	u.workers.minAge, u.pauses.minAge, u.overview.minAge = 200*time.Millisecond, time.Second, time.Second
	u.hub.init(u.load, u.reportViewError, o.Streams)
	var err error
	if u.assets, err = newAssets(o.Base); err != nil {
		return nil, err
	}
	if u.pages, err = u.parseTemplates(); err != nil {
		return nil, err
	}
	u.registerRoutes()
	return u, nil
}

// route says what is where. What changes something is a POST.
func (u *UI) registerRoutes() {
	m := http.NewServeMux()
	m.HandleFunc("GET /{$}", u.serveBoard)
	m.HandleFunc("GET /videos/{id}", u.serveVideo)
	m.HandleFunc("GET /workers", u.serveWorkers)
	m.HandleFunc("GET /dead", u.serveDead)
	m.HandleFunc("GET /latency", u.serveLatency)
	m.HandleFunc("GET /login", u.serveLogin)
	m.HandleFunc("GET /live", u.serveStream)
	m.Handle("GET /assets/", u.assets)
	m.HandleFunc("GET /add", u.serveConfirmation(confirmAdd))
	m.HandleFunc("POST /add", u.serveAction(maySubmit, doAdd))
	for path, a := range map[string]action{
		"/videos/{id}/retry":    {confirmRetry, doRetry},
		"/videos/{id}/override": {confirmOverride, doOverride},
		"/videos/{id}/cancel":   {confirmCancel, doCancel},
		"/dead/retry":           {confirmRetryDead, doRetryDead},
		"/pause":                {confirmPause, doPause},
		"/resume":               {confirmResume, doResume},
		"/workers/{id}/drain":   {confirmDrain, doDrain},
	} {
		m.HandleFunc("GET "+path, u.serveConfirmation(a.ask))
		m.HandleFunc("POST "+path, u.serveAction(mayOperate, a.do))
	}
	m.HandleFunc("POST /theme", u.serveTheme)
	m.HandleFunc("/", u.serveNotFound)
	u.mux = m
}

// ServeHTTP is the dashboard's handler.
func (u *UI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	u.mux.ServeHTTP(w, r)
}

// What a page may do. Only the player makes workers, from a blob.
const (
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self' blob:; " +
		"connect-src 'self'; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
	playerPolicy = policy + "; worker-src blob:"
)

// Run keeps open pages up to date until ctx is done; then their streams end. It is
// called once. Without it, a page shows what there was when it was opened.
func (u *UI) Run(ctx context.Context) error {
	return u.hub.run(ctx, u.o.Subscribe)
}
