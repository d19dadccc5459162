package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/cuelight/cuelight/internal/jsonbody"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// maxRequest is the size limit of a request's JSON, in bytes: results have up to 16 MiB.
const maxRequest = 20 << 20

// requestTimeout is that of a request to the database. It is longer than the waits for locks in it.
const requestTimeout = 25 * time.Second

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

// request is a request of an authenticated worker.
type request struct {
	*http.Request
	principal string
}

// handle authenticates, decodes the body, if the method has one, and writes the response as JSON.
func handle[In, Out any](c *Coordinator, do func(ctx context.Context, r request, in In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		principal, err := c.authenticate(r)
		var in In
		if err == nil && r.URL.RawQuery != "" {
			err = problem.New(problem.InvalidRequest, "the worker API takes no parameters in the address; docs/workers.md describes it")
		}
		if err == nil && r.Method == http.MethodPost {
			var text []byte
			if text, err = jsonbody.Read(w, r, maxRequest); err == nil {
				err = jsonbody.Decode(text, &in)
			}
		}
		var out Out
		if err == nil {
			out, err = do(r.Context(), request{r, principal}, in)
		}
		if err != nil {
			c.writeError(w, r, err)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		if _, isEmpty := any(out).(noContent); isEmpty {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // an error is the client's
	})
}

func (c *Coordinator) authenticate(r *http.Request) (string, error) {
	principal, err := c.o.Authenticate(r)
	if err == nil && principal == "" {
		err = errors.New("credentials are needed")
	}
	if err != nil {
		return "", problem.New(problem.Unauthenticated, "%v", err)
	}
	if !c.limit(principal).Allow() {
		return "", problem.New(problem.TooManyRequests, "%s has sent more than %g requests a second, its limit",
			principal, c.o.RequestsPerSecond).After(time.Second)
	}
	return principal, nil
}

// limit returns the limiter of a principal's requests. There are as many as keys.
func (c *Coordinator) limit(principal string) *rate.Limiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.limits[principal]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(c.o.RequestsPerSecond), int(4*c.o.RequestsPerSecond))
		c.limits[principal] = l
	}
	return l
}

func (c *Coordinator) writeError(w http.ResponseWriter, r *http.Request, err error) {
	p, ok := errors.AsType[*problem.Problem](err)
	switch {
	case ok:
	case errors.Is(err, store.ErrWorkerUnknown):
		p = problem.New(problem.WorkerUnknown, "the worker is not registered, or was lost; register again")
	case errors.Is(err, errClosing):
		p = problem.New(problem.Unavailable, "%v; use another, or try again", err).After(time.Second)
	case errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrNoStage):
		p = problem.New(problem.NotFound, "%v", err)
	case errors.Is(err, store.ErrLocked):
		p = problem.New(problem.Unavailable, "another transaction has locked the tables; try again").After(time.Second)
	case r.Context().Err() != nil:
		p = problem.New(problem.Unavailable, "the request has ended")
	default:
		c.o.OnError(err)
		p = problem.New(problem.Unavailable, "the database is not available; try again later").After(time.Second)
	}
	p.Write(w, r)
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
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
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
	own, err := c.ownWorkers(ctx, r)
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

// requestClaim returns the claim whose token is in the path, and its worker.
func (c *Coordinator) requestClaim(ctx context.Context, r request) (*worker, engine.Claim, error) {
	token, err := store.ParseID(r.PathValue("token"))
	if err != nil {
		return nil, engine.Claim{}, problem.New(problem.NotFound, "%v", err)
	}
	if w, claim := c.findClaim(r.principal, token); w != nil {
		return w, claim, nil
	}
	// Another coordinator may have made it.
	own, err := c.ownWorkers(ctx, r)
	if err != nil {
		return nil, engine.Claim{}, err
	}
	for _, row := range own {
		w, err := c.findWorker(ctx, row.ID, r.principal)
		if err != nil {
			return nil, engine.Claim{}, err
		}
		claims, err := c.claimsOf(ctx, w, []store.ID{token})
		if err != nil {
			return nil, engine.Claim{}, err
		}
		if claim, held := claims[token]; held {
			return w, claim, nil
		}
	}
	return nil, engine.Claim{}, problem.New(problem.ClaimLost, "no worker of this key has the claim %s", token)
}

func (c *Coordinator) findClaim(principal string, token store.ID) (*worker, engine.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		if claim, held := w.claims[token]; held && w.principal == principal {
			w.lastRequest, w.disconnected = time.Now(), false
			return w, claim
		}
	}
	return nil, engine.Claim{}
}

func (a runningBody) running(claim engine.Claim, stage string) store.Running {
	return store.Running{
		Task: claim.Task, Stage: stage, Token: claim.Token, Attempt: claim.Attempt,
		Percent: min(max(a.Percent, -1), 100), Speed: max(a.Speed, 0), ETA: seconds(a.ETA).Seconds(),
		Note: cleanText(redact.Text(a.Note, claim.Source), maxNote),
	}
}

// unknownStage is the answer to a request that names a stage which the pipeline does not have.
func unknownStage(name string) error {
	return problem.New(problem.Invalid, "%v", fmt.Errorf("%w: %q", store.ErrNoStage, name))
}
