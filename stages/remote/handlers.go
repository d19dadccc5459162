package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// ServeHTTP serves the protocol.
func (c *Coordinator) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.mux.ServeHTTP(w, r) }

// Route is one operation of the protocol; its path is relative to that of the Coordinator.
type Route struct{ Method, Path string }

// Routes lists the operations of the protocol.
func Routes() []Route {
	var routes []Route
	for _, r := range (&Coordinator{}).routes() {
		routes = append(routes, r.Route)
	}
	return routes
}

// route is a Route with its handler.
type route struct {
	Route
	handler http.Handler
}

func (c *Coordinator) routes() []route {
	input, output := http.HandlerFunc(c.serveInput), http.HandlerFunc(c.serveOutput)
	return []route{
		{Route{"GET", "/pipeline"}, handle(c, c.pipeline)},
		{Route{"POST", "/register"}, handle(c, c.register)},
		{Route{"POST", "/deregister"}, handle(c, forWorker(c, c.deregister))},
		{Route{"POST", "/drain"}, handle(c, forWorker(c, c.drain))},
		{Route{"POST", "/exchange"}, handle(c, c.exchange)},
		{Route{"POST", "/heartbeat"}, handle(c, c.heartbeat)},
		{Route{"GET", "/workers"}, handle(c, c.listOwnWorkers)},
		{Route{"POST", "/workers/expire"}, handle(c, c.expireWorkers)},
		{Route{"POST", "/claims/check"}, handle(c, c.checkClaims)},
		{Route{"GET", "/claims/{token}/results/{stage}"}, handle(c, c.result)},
		{Route{"GET", "/claims/{token}/input/{path...}"}, input},
		{Route{"HEAD", "/claims/{token}/output/{path...}"}, output},
		{Route{"PUT", "/claims/{token}/output/{path...}"}, output},
	}
}

func (c *Coordinator) newMux() *http.ServeMux {
	m := http.NewServeMux()
	for _, r := range c.routes() {
		m.Handle(r.Method+" "+r.Path, r.handler)
	}
	m.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem.New(problem.NotFound, "unknown path of the worker API; docs/workers.md lists all").Write(w, r)
	})
	return m
}

// forWorker finds the worker of a request whose body names nothing else.
func forWorker[Out any](
	c *Coordinator, do func(ctx context.Context, w *worker) (Out, error),
) func(ctx context.Context, r request, in workerRequest) (Out, error) {
	return func(ctx context.Context, r request, in workerRequest) (out Out, err error) {
		w, err := c.findWorker(ctx, in.Worker, r.principal)
		if err != nil {
			return out, err
		}
		return do(ctx, w)
	}
}

// withTurn calls do while no other exchange of the worker is in progress.
func (c *Coordinator) withTurn(ctx context.Context, w *worker, do func() error) error {
	select {
	case w.exchanging <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.exchanging }()
	return do()
}

func (c *Coordinator) heartbeat(ctx context.Context, r request, in heartbeatRequest) (out heartbeatResponse, err error) {
	w, err := c.findWorker(ctx, in.Worker, r.principal)
	if err != nil {
		return out, err
	}
	out.Lost = []lostBody{}
	all, tokens := firstOfEach(in.Running, func(a runningBody) store.ID { return a.Token })
	claims, err := c.claimsOf(ctx, w, tokens)
	if err != nil {
		return out, err
	}
	c.mu.Lock()
	before := w.running
	c.mu.Unlock()
	var running, progressed []store.Running
	for _, a := range all {
		claim, held := claims[a.Token]
		if !held {
			out.Lost = append(out.Lost, lostBody{a.Token, c.isCancelled(w, a.Token)})
			continue
		}
		if !a.Started {
			continue
		}
		description := a.running(claim, c.stages[claim.Stage])
		isChecked, isFirst := c.checks.show(a.Token)
		if isChecked {
			description.Note = checkingNote
		}
		if movesOn(before, description) {
			c.showProgress(w, a.Token)
		}
		running = append(running, description)
		if a.Progressed || isFirst {
			progressed = append(progressed, description)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if since := time.Since(c.renewed); since > maxUnrenewed && time.Since(w.since) > maxUnrenewed {
		return out, problem.New(problem.Unavailable, "the database has not answered for %s", since.Round(time.Second)).After(time.Second)
	}
	w.started = w.started || len(running) != len(w.running)
	w.running = running
	if progressed != nil {
		w.progressed = progressed
	}
	w.hasLost = false
	w.controls = c.controlsOf(w)
	out.Control = w.controls
	return out, nil
}

// movesOn reports whether an attempt has another percent or note than in the heartbeat before.
func movesOn(before []store.Running, now store.Running) bool {
	return !slices.ContainsFunc(before, func(r store.Running) bool {
		return r.Token == now.Token && r.Percent == now.Percent && r.Note == now.Note
	})
}

func (c *Coordinator) isCancelled(w *worker, token store.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return w.lost[token]
}

// checkClaims asks the database which claims a worker has lost.
func (c *Coordinator) checkClaims(ctx context.Context, r request, in claimsRequest) (out claimsResponse, err error) {
	w, err := c.findWorker(ctx, in.Worker, r.principal)
	if err != nil {
		return out, err
	}
	out.Lost = []lostBody{}
	held, err := c.claimsOf(ctx, w, in.Tokens)
	if err != nil {
		return out, err
	}
	var claims []engine.Claim
	for _, token := range in.Tokens {
		claim, ok := held[token]
		if !ok {
			out.Lost = append(out.Lost, lostBody{token, c.isCancelled(w, token)})
			continue
		}
		claims = append(claims, claim)
	}
	lost, err := c.engine.FindLostClaims(ctx, claims)
	for _, l := range lost {
		out.Lost = append(out.Lost, lostBody(l))
	}
	return out, err
}

func (c *Coordinator) claimBodies(claims []engine.Claim) []claimBody {
	bodies := make([]claimBody, len(claims))
	for i, claim := range claims {
		bodies[i] = newClaimBody(claim, c.stages[claim.Stage])
		bodies[i].Source = c.o.Source(claim.Source)
	}
	return bodies
}

func (c *Coordinator) listOwnWorkers(ctx context.Context, r request, _ struct{}) (out ownWorkersResponse, err error) {
	own, err := c.store.WorkersOf(ctx, r.principal)
	out.Workers = []ownWorkerBody{}
	for _, w := range own {
		out.Workers = append(out.Workers, ownWorkerBody{w.ID, w.Name, w.Host, w.PID, w.ProcessIdentity})
	}
	return out, err
}

// result returns the result of a stage that the claim's stage needs, directly or not.
func (c *Coordinator) result(ctx context.Context, r request, _ struct{}) (json.RawMessage, error) {
	_, claim, err := c.requestClaim(ctx, r)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("stage")
	stage, ok := c.graph.Stage(name)
	if !ok || stage != claim.Stage && !slices.Contains(c.graph.Upstream(claim.Stage), stage) {
		return nil, problem.New(problem.NotFound, "stage %s does not need a stage %q", c.stages[claim.Stage], name)
	}
	raw, err := c.store.Result(ctx, claim.Task, name)
	if err == nil && raw == nil {
		raw = json.RawMessage("null")
	}
	return raw, err
}

func (a runningBody) running(claim engine.Claim, stage string) store.Running {
	return store.Running{
		Task: claim.Task, Stage: stage, Part: claim.Part, Parts: claim.Parts, Token: claim.Token, Attempt: claim.Attempt,
		Percent: min(max(a.Percent, -1), 100), Speed: max(a.Speed, 0), ETA: seconds(a.ETA).Seconds(),
		Note: cleanText(redact.Text(a.Note, claim.Source), maxNote),
	}
}

// unknownStage is the answer to a request that names a stage which the pipeline does not have.
func unknownStage(name string) error {
	return problem.New(problem.Invalid, "%v", fmt.Errorf("%w: %q", store.ErrNoStage, name))
}
