package ui

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/internal/media/captions"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/readcache"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web/internal/assets"
)

// Reader reads what the dashboard shows. [NewReader] returns one.
type Reader interface {
	Graph() store.Graph
	Get(ctx context.Context, id store.ID) (store.Task, error)
	FindNewest(ctx context.Context, text string) (store.ID, error)
	History(ctx context.Context, id store.ID) ([]store.Attempt, error)
	Parts(ctx context.Context, id store.ID) ([]store.PartState, error)
	PartsProgress(ctx context.Context, tasks []store.Task,
		workers func(context.Context) ([]store.Worker, error)) ([]report.PartsProgress, error)
	OverriddenBy(ctx context.Context, id store.ID) ([]store.ID, error)
	Page(ctx context.Context, q store.ListQuery) (store.Page, error)
	Stats(ctx context.Context) (report.Stats, error)
	Workers(ctx context.Context, all bool) ([]store.Worker, error)
	StoppedWorkers(ctx context.Context, before store.ID, limit int) ([]store.Worker, error)
	GetDeleted(ctx context.Context, id store.ID) (store.DeletedTask, error)
	ListDeleted(ctx context.Context, q store.DeletedQuery) ([]store.DeletedTask, error)
	Pauses(ctx context.Context) ([]store.Pause, error)
	Keys(ctx context.Context) ([]report.Key, error)
	DeadGroups(ctx context.Context, f report.DeadFilter, limit int) (report.DeadGroups, error)
	DeadStages(ctx context.Context, f report.DeadFilter, after store.ID, limit int) ([]report.DeadStage, store.ID, error)
	CountDead(ctx context.Context, f report.DeadFilter) (n int, more bool, err error)
	Latency(ctx context.Context, q report.LatencyQuery) (report.Latency, error)
}

// NewReader returns the Reader of a pipeline.
func NewReader(st *store.Store) Reader {
	return struct {
		*store.Store
		*report.Reader
	}{st, report.New(st.DB(), st.Graph())}
}

// Actions changes tasks, pauses, workers and keys for a viewer, who is in the context. The
// actions of package ops are some. Pages show the errors; they explain those of package
// store and [ErrForbidden].
type Actions interface {
	Submit(ctx context.Context, subs ...store.Submission) ([]store.Receipt, error)
	Override(ctx context.Context, old []store.ID, by store.Submission) (store.Receipt, error)
	Retry(ctx context.Context, id store.ID, o ops.RetryOptions) error
	RetryDead(ctx context.Context, f report.DeadFilter, o store.RetryAllOptions) (store.RetryAllResult, error)
	Cancel(ctx context.Context, id store.ID) error
	Delete(ctx context.Context, id store.ID, o store.DeleteOptions) (store.DeletedTask, error)
	Undelete(ctx context.Context, id store.ID) error
	Edit(ctx context.Context, id store.ID, e video.Edit) error
	Pause(ctx context.Context, p store.Pause) error
	Resume(ctx context.Context, p store.Pause) error
	DrainWorker(ctx context.Context, worker store.ID) error
	CreateKey(ctx context.Context, name, scope string, labels ...string) (key access.Key, text string, err error)
	DisableKey(ctx context.Context, key store.ID) (access.Key, error)
	EnableKey(ctx context.Context, key store.ID) (access.Key, error)
	AddCaptions(ctx context.Context, task store.ID, fileName string, data []byte, f attached.File) (attached.File, error)
	RemoveCaptions(ctx context.Context, task, captions store.ID) error
}

// ErrForbidden is wrapped by errors of [Actions] that a viewer lacks a permission. The
// page shows the rest of the error's text.
var ErrForbidden = errors.New("forbidden")

// ErrTooManySubmissions is wrapped by errors of [Actions] that a user has submitted too much. The page shows the rest of
// the error's text.
var ErrTooManySubmissions = errors.New("too many submissions")

// Viewer is the user of a request.
type Viewer struct {
	Name    string
	Submit  bool // may add videos
	Operate bool // may use all other [Actions]
}

// Profile is a named profile of videos.
type Profile struct {
	Name, Settings string     // Settings describes them; empty if all are the defaults
	UpdatedAt      *time.Time // nil: built in
	UpdatedBy      string
}

// Subscription receives events. A *eventfeed.Subscription implements it.
type Subscription interface {
	// Next waits for events. It returns an error when no more will come.
	Next(ctx context.Context) ([]store.Event, error)
	Close()
}

// Options configures a dashboard. Only Store is required.
type Options struct {
	Store Reader
	// Actions executes the viewer's actions. Default: the dashboard is read-only.
	Actions Actions
	// Subscribe returns a subscription to the events from now on that keep accepts. The
	// dashboard holds one while pages are open. Default: open pages are read again
	// every two seconds.
	Subscribe func(keep func(store.Event) bool) Subscription
	// Viewer returns the user of a request. Default: a user without a name and with
	// all permissions.
	Viewer func(ctx context.Context) Viewer
	// WakeLatency returns the recent wake latency of this process: see the event
	// StageStarted of package stages. Default: the board does not show it.
	WakeLatency func(within time.Duration) report.Percentiles
	// Playback returns how tasks are watched, by their ids; tasks that were never published are absent. The addresses begin with
	// BasePath, and are for everybody who has them: for a week, or while the video is public. Default: no pictures and players, and
	// titles cannot be changed.
	Playback func(ctx context.Context, tasks ...store.Task) (map[store.ID]*playback.Video, error)
	// PublicURL replaces BasePath in the addresses that pages offer to copy. Default: the address of the page.
	PublicURL string
	// Profiles returns the profiles of videos, which are listed and which forms offer; the one of submissions that name
	// none is first. SettingsOf describes what a task's parameters ask for: the name of a profile, which may be empty,
	// and the settings. Default: none, and no page of profiles.
	Profiles func(ctx context.Context) ([]Profile, error)
	// RenditionsOf returns the heights of the renditions that a retry of a task can select. Default: none.
	RenditionsOf func(ctx context.Context, task store.ID) ([]int, error)
	SettingsOf   func(t store.Task) (profile, settings string)
	// Captions returns the captions that are attached to a task. Default: captions cannot be attached.
	Captions func(ctx context.Context, task store.ID) ([]attached.File, error)
	// Uploads is the address of a server of the tus protocol, version 1.0.0. Default:
	// no uploads.
	Uploads string
	// BasePath is the path where the dashboard is mounted, such as "/cuelight". The
	// handler gets paths without it. Default: the root.
	BasePath string
	// Version is shown at the foot of each page.
	Version string
	// OnAction is called after each action, before pages are read again. Default: nothing is called.
	OnAction func(ctx context.Context)
	// ReadFrom describes where pages are read from, at the foot of each. Default: nothing is shown.
	ReadFrom func() string
	// Logout is the address of the sign-out form. Default: no such button.
	Logout string
	// Login is the address of the sign-in form. It gets the fields secret and next, the
	// path to go to afterwards. After a failure it redirects to /login with
	// failed=wrong, or failed=limited and wait=SECONDS. Default: BasePath + "/login".
	Login string
	// MaxStreams is the maximum number of open streams; pages beyond it do not update.
	// Default: 1000.
	MaxStreams int
	// OnError gets server-side errors, which users see without details, with the page or
	// the route. A lasting error of a page is reported once. It must not block.
	// Default: errors are dropped.
	OnError func(where string, err error)
}

// UI is the dashboard. It is an http.Handler.
type UI struct {
	o      Options
	layout pipelineLayout
	pages  map[string]*template.Template
	assets assets.Files
	mux    *http.ServeMux
	hub    *hub
	errors errorLog

	current  readcache.Cache[current]
	overview readcache.Cache[overview]
	titles   titleCache
}

// New creates a dashboard. It reads nothing from the store.
func New(o Options) (*UI, error) {
	if o.Store == nil {
		return nil, errors.New("dashboard: Options.Store is not set")
	}
	if o.MaxStreams <= 0 {
		o.MaxStreams = 1000
	}
	if o.Login == "" {
		o.Login = o.BasePath + "/login"
	}
	if o.Viewer == nil {
		o.Viewer = func(context.Context) Viewer { return Viewer{Submit: true, Operate: true} }
	}
	if o.OnAction == nil {
		o.OnAction = func(context.Context) {}
	}
	if viewer := o.Viewer; o.Actions == nil {
		o.Viewer = func(ctx context.Context) Viewer { return Viewer{Name: viewer(ctx).Name} }
	}
	u := &UI{o: o, layout: newPipelineLayout(o.Store.Graph())}
	u.current.MaxAge, u.current.Timeout, u.current.Factor = 200*time.Millisecond, readTimeout, slowFactor
	u.overview.MaxAge, u.overview.Timeout, u.overview.Factor = time.Second, readTimeout, slowFactor
	u.hub = newHub(u.load, u.reportViewError, o.MaxStreams)
	var err error
	if u.assets, err = newAssets(o.BasePath); err != nil {
		return nil, err
	}
	if u.pages, err = u.parseTemplates(); err != nil {
		return nil, err
	}
	u.registerRoutes()
	return u, nil
}

// registerRoutes fills the mux. All changes are POST requests.
func (u *UI) registerRoutes() {
	m := http.NewServeMux()
	m.HandleFunc("GET /{$}", u.serveBoard)
	m.HandleFunc("GET /videos/{id}", u.serveVideo)
	m.HandleFunc("GET /workers", u.serveWorkers)
	m.HandleFunc("GET /dead", u.serveDead)
	m.HandleFunc("GET /latency", u.serveLatency)
	m.HandleFunc("GET /deleted", u.serveDeleted)
	if u.o.Profiles != nil {
		m.HandleFunc("GET /profiles", u.serveProfiles)
	}
	if u.o.Captions != nil {
		m.HandleFunc("GET /videos/{id}/captions", u.serveCaptions)
		m.HandleFunc("POST /videos/{id}/captions", u.serveAction(action{
			isAllowed: mayOperate, do: doAddCaptions, maxForm: captions.MaxBytes + maxForm,
		}))
		m.HandleFunc("POST /videos/{id}/captions/remove", u.serveAction(action{isAllowed: mayOperate, do: doRemoveCaptions}))
	}
	if u.o.Playback != nil {
		edit := action{isAllowed: mayOperate, confirm: confirmEdit, do: doEdit}
		m.HandleFunc("GET /videos/{id}/edit", u.serveConfirmation(edit))
		m.HandleFunc("POST /videos/{id}/edit", u.serveAction(edit))
	}
	m.HandleFunc("GET /login", u.serveLogin)
	m.HandleFunc("GET /live", u.serveStream)
	m.Handle("GET /assets/{name...}", u.assets)
	for path, a := range map[string]action{
		"/add":                  {isAllowed: maySubmit, confirm: confirmAdd, do: doAdd},
		"/videos/{id}/retry":    {isAllowed: mayOperate, confirm: confirmRetry, do: doRetry},
		"/videos/{id}/override": {isAllowed: mayOperate, confirm: confirmOverride, do: doOverride},
		"/videos/{id}/cancel":   {isAllowed: mayOperate, confirm: confirmCancel, do: doCancel},
		"/videos/{id}/delete":   {isAllowed: mayOperate, confirm: confirmDelete, do: doDelete},
		"/videos/{id}/undelete": {isAllowed: mayOperate, confirm: confirmUndelete, do: doUndelete},
		"/dead/retry":           {isAllowed: mayOperate, confirm: confirmRetryDead, do: doRetryDead},
		"/pause":                {isAllowed: mayOperate, confirm: confirmPause, do: doPause},
		"/resume":               {isAllowed: mayOperate, confirm: confirmResume, do: doResume},
		"/workers/{id}/drain":   {isAllowed: mayOperate, confirm: confirmDrain, do: doDrain},
		"/keys/{id}/disable":    {isAllowed: mayOperate, confirm: confirmDisableKey, do: doDisableKey},
		"/keys/{id}/enable":     {isAllowed: mayOperate, confirm: confirmEnableKey, do: doEnableKey},
	} {
		m.HandleFunc("GET "+path, u.serveConfirmation(a))
		m.HandleFunc("POST "+path, u.serveAction(a))
	}
	m.HandleFunc("GET /keys/create", u.serveKeyForm)
	m.HandleFunc("POST /keys/create", u.serveNewKey)
	m.HandleFunc("POST /theme", u.serveTheme)
	m.HandleFunc("/", u.serveNotFound)
	u.mux = m
}

// policy lets pages load what this server has. The player is a page of its own, in a frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; font-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"

// ServeHTTP serves the pages, their streams and assets, and the actions.
func (u *UI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	u.mux.ServeHTTP(w, r)
}

// Run updates open pages until ctx is done; then their streams end. It is called once.
// Without it, pages do not update.
func (u *UI) Run(ctx context.Context) error {
	return u.hub.run(ctx, u.o.Subscribe)
}
