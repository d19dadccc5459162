package remote

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// Options configure a [Coordinator]. Pool, Pipeline and Authenticate must be set.
type Options struct {
	Pool     *pgxpool.Pool
	Pipeline *stages.Pipeline

	// Authenticate returns the name under which a request's worker is registered, such as that
	// of its key. Workers of other names cannot use its claims. An error is answered with 401.
	Authenticate func(r *http.Request) (principal string, err error)

	// Wakes reports notifications of the pipeline's stages and its control channel. Default: a
	// notify.Listener on Pool, which Run runs.
	Wakes stages.WakeSource

	// Files has the files of claims. Default: none, for stages that need none.
	Files Files

	// Source returns the source of a task as remote workers see it, for sources with secrets. Default:
	// the whole source.
	Source func(source string) string

	// RequestsPerSecond limits the requests under one name; more are answered with 429. Default 500,
	// and four times as many in a burst.
	RequestsPerSecond float64

	// MayOffer reports whether the worker of a request may offer a label or an encoder to tasks. Default: any, so that
	// what a task requires says nothing about whose workers do it.
	MayOffer func(r *http.Request, offer string) bool

	// MaxWorkers is how many live workers one name may have, in all of the database; further registrations are
	// answered with 429. Default 2,000. MaxClaims is how many claims these may hold at this coordinator.
	// Default 10,000.
	MaxWorkers, MaxClaims int

	// MaxRunningPerUser is that of [stages.Runner].
	MaxRunningPerUser int

	// IsDirect reports whether a request came without a proxy, so that the end of its connection
	// means the end of the worker's process or network. Default: it has none of the headers
	// Forwarded, X-Forwarded-For and Via.
	IsDirect func(r *http.Request) bool

	// Stages names the stages that remote workers may do. Default: all.
	Stages []string

	// OnRefused is called after the result of a worker was refused, and the history has the failed
	// attempt with the error class "refused". It must not block.
	OnRefused func(worker store.ID, principal, reason string)

	// OnError is called when the database fails, and with nil when it works again. It must not block.
	OnError func(error)
}

// Coordinator serves remote workers. It is an http.Handler, of the paths below the one that it
// is mounted at. Create it with [NewCoordinator]; Run must run while it serves.
type Coordinator struct {
	o      Options
	graph  store.Graph
	stages []string
	allows []bool // by stage: remote workers may do it
	engine *engine.Engine
	store  *store.Store
	mux    *http.ServeMux

	listener *notify.Listener // nil if the wakes are the caller's
	grantNow chan struct{}    // handlers → Run: a worker waits, or a stage may have ready tasks
	checkNow chan struct{}    // Run → renewal: operators or other workers changed something
	wrote    chan struct{}    // all → notifier: there are new events
	checks   checks           // of files
	context  context.Context  // of the checks; done when Run ends
	cancel   context.CancelFunc

	mu      sync.Mutex // guards the rest
	workers map[store.ID]*worker
	waiting []*worker // in the order in which they began to wait
	classes map[string]*class
	pauses  []store.Pause
	// waitingSteps are those of all stages that wait for a time.
	waitingSteps engine.WaitingSteps
	renewed      time.Time // when the database last took the heartbeats
	// pausesKnown says that pauses were read; nothing is claimed before.
	pausesKnown bool
	closing     bool               // Run is ending
	limits      map[string]*limits // by principal
}

// class is what workers with the same offers have in common: which tasks are ready for them.
type class struct {
	workers int                 // how many there are
	lacks   []bool              // by stage: they do not meet its requirements
	queues  []engine.ReadyQueue // see store.Graph.Queues
}

// NewCoordinator returns a Coordinator. It does not use the database.
func NewCoordinator(o Options) *Coordinator {
	graph := o.Pipeline.Graph()
	c := &Coordinator{
		o: o, graph: graph, stages: graph.Stages(), engine: engine.New(o.Pool, graph), store: store.New(o.Pool, graph),
		grantNow: make(chan struct{}, 1), checkNow: make(chan struct{}, 1), wrote: make(chan struct{}, 1),
		workers: make(map[store.ID]*worker), classes: make(map[string]*class), renewed: time.Now(),
	}
	if c.o.Wakes == nil {
		c.listener = notify.New(o.Pool, notify.Options{Channels: c.channels()})
		c.o.Wakes = c.listener
	}
	c.limits, c.o.RequestsPerSecond = make(map[string]*limits), cmp.Or(c.o.RequestsPerSecond, 500)
	c.o.MaxWorkers, c.o.MaxClaims = cmp.Or(c.o.MaxWorkers, 2000), cmp.Or(c.o.MaxClaims, 10_000)
	if c.o.MayOffer == nil {
		c.o.MayOffer = func(*http.Request, string) bool { return true }
	}
	if c.o.Source == nil {
		c.o.Source = func(source string) string { return source }
	}
	if c.o.IsDirect == nil {
		c.o.IsDirect = hasNoProxyHeader
	}
	if c.o.OnRefused == nil {
		c.o.OnRefused = func(store.ID, string, string) {}
	}
	if c.o.OnError == nil {
		c.o.OnError = func(error) {}
	}
	for _, name := range c.stages {
		c.allows = append(c.allows, len(o.Stages) == 0 || slices.Contains(o.Stages, name))
	}
	c.context, c.cancel = context.WithCancel(context.Background())
	c.mux = c.newMux()
	return c
}

func (c *Coordinator) channels() []string {
	channels := []string{c.graph.ControlChannel()}
	for _, name := range c.stages {
		channels = append(channels, c.graph.Channel(name))
	}
	return channels
}

func hasNoProxyHeader(r *http.Request) bool {
	return !slices.ContainsFunc([]string{"Forwarded", "X-Forwarded-For", "Via"},
		func(name string) bool { return r.Header.Get(name) != "" })
}

// scanInterval is how often stages are claimed from without a notification, while a worker waits.
const scanInterval = 15 * time.Second

// Run claims for waiting workers and renews the leases of all, until ctx is done. Then it
// answers the waiting requests, so that the workers go to another coordinator.
func (c *Coordinator) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer all.Wait()
	if c.listener != nil {
		all.Go(func() {
			if err := c.listener.Run(ctx); err != nil && ctx.Err() == nil {
				c.o.OnError(err)
			}
		})
	}
	signal(c.checkNow) // pauses may have changed before the first notification
	all.Go(func() { c.runRenewal(ctx) })
	all.Go(func() { c.notifyEvents(ctx) })
	defer c.checks.wait()
	defer c.cancel()
	defer c.close()
	scan := time.NewTicker(scanInterval)
	defer scan.Stop()
	for {
		timer := time.NewTimer(time.Until(c.grantReady(ctx)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-c.o.Wakes.C():
			c.handleWakes(c.o.Wakes.Take())
		case <-scan.C:
			c.markReady()
		case <-c.grantNow:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (c *Coordinator) handleWakes(wakes []notify.Wake) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range wakes {
		for i, name := range c.stages {
			if w.Channel == c.graph.Channel(name) {
				for _, class := range c.classes {
					class.queues[c.graph.WorkQueue(i)].Wake(w.Payloads)
				}
			}
		}
		if w.Channel == c.graph.ControlChannel() {
			signal(c.checkNow)
		}
	}
}

// markReady makes every stage be claimed from, in case a notification was lost.
func (c *Coordinator) markReady() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waitingSteps.Due = true
	for _, class := range c.classes {
		class.markReady()
	}
}

func (c *class) markReady() {
	for i := range c.queues {
		c.queues[i].Restart()
	}
}

// close answers all waiting requests and refuses new ones.
func (c *Coordinator) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	for _, w := range slices.Clone(c.waiting) {
		c.answer(w, waitResult{err: errClosing})
	}
}

var errClosing = errors.New("this coordinator is stopping")

// signal sends a value into c, which has room for one, unless it has one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
