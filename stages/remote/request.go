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
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// Size limits of a request's JSON, in bytes: an exchange has results, of up to 16 MiB each. So many requests of
// one principal that are larger than the other limit are read at a time.
const (
	maxExchange      = 20 << 20
	maxRequest       = 1 << 20
	maxLargeRequests = 4
)

// requestTimeout is that of a request to the database. It is longer than the waits for locks in it.
const requestTimeout = 25 * time.Second

// request is a request of an authenticated worker.
type request struct {
	*http.Request
	principal string
}

// handle authenticates, decodes the body, if the method has one, and writes the response as JSON. The context
// of do ends after requestTimeout.
func handle[In, Out any](c *Coordinator, do func(ctx context.Context, r request, in In) (Out, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		principal, err := c.authenticate(r)
		var in In
		if err == nil && r.URL.RawQuery != "" {
			err = problem.New(problem.InvalidRequest, "the worker API takes no parameters in the address; docs/workers.md describes it")
		}
		if err == nil && r.Method == http.MethodPost {
			err = c.decode(w, r, principal, &in)
		}
		var out Out
		if err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
			out, err = do(ctx, request{r, principal}, in)
			cancel()
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
		body, err := json.Marshal(out)
		if err != nil {
			c.o.OnError(fmt.Errorf("encode response: %w", err))
			problem.New(problem.Internal, "an internal error occurred; the server's log has the details").Write(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(body, '\n')) // the client may be gone
	})
}

// decode decodes the body of a request.
func (c *Coordinator) decode(w http.ResponseWriter, r *http.Request, principal string, in any) error {
	most := int64(maxRequest)
	if _, isExchange := in.(*exchangeRequest); isExchange {
		most = maxExchange
	}
	if r.ContentLength < 0 || r.ContentLength > maxRequest {
		slots := c.limitsOf(principal).large
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-r.Context().Done():
			return context.Cause(r.Context())
		}
	}
	text, err := jsonbody.Read(w, r, most)
	if err != nil {
		return err
	}
	return jsonbody.Decode(text, in)
}

func (c *Coordinator) authenticate(r *http.Request) (string, error) {
	principal, err := c.o.Authenticate(r)
	if err == nil && principal == "" {
		err = errors.New("credentials are needed")
	}
	if err != nil {
		return "", problem.New(problem.Unauthenticated, "%v", err)
	}
	if !c.limitsOf(principal).requests.Allow() {
		return "", problem.New(problem.TooManyRequests, "%s has sent more than %g requests a second, its limit",
			principal, c.o.RequestsPerSecond).After(time.Second)
	}
	return principal, nil
}

// limits are those of a principal's requests.
type limits struct {
	requests *rate.Limiter
	large    chan struct{} // has a value for each large request that is being read
	claims   int           // of its workers that live; by the lock of the Coordinator
}

// limitsOf returns the limits of a principal. There are as many as keys.
func (c *Coordinator) limitsOf(principal string) *limits {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lockedLimitsOf(principal)
}

// lockedLimitsOf is limitsOf while the lock is held.
func (c *Coordinator) lockedLimitsOf(principal string) *limits {
	l := c.limits[principal]
	if l == nil {
		l = &limits{
			requests: rate.NewLimiter(rate.Limit(c.o.RequestsPerSecond), int(4*c.o.RequestsPerSecond)),
			large:    make(chan struct{}, maxLargeRequests),
		}
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

// requestClaim returns the claim whose token is in the path, and its worker.
func (c *Coordinator) requestClaim(ctx context.Context, r request) (*worker, engine.Claim, error) {
	token, err := store.ParseID(r.PathValue("token"))
	if err != nil {
		return nil, engine.Claim{}, problem.New(problem.NotFound, "%v", err)
	}
	holder, isKnown := c.findHolder(r.principal, token)
	if !isKnown { // another coordinator may have made it
		holder, err = c.readHolder(ctx, r.principal, token)
	}
	if err == nil {
		var w *worker
		if w, err = c.findWorker(ctx, holder, r.principal); err == nil {
			var claims map[store.ID]engine.Claim
			claims, err = c.claimsOf(ctx, w, []store.ID{token})
			if claim, held := claims[token]; held {
				return w, claim, nil
			}
		}
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrWorkerUnknown) {
		return nil, engine.Claim{}, err
	}
	return nil, engine.Claim{}, problem.New(problem.ClaimLost, "no worker of this key has the claim %s", token)
}

// readHolder is findHolder in the database. It returns [store.ErrNotFound] if no worker has the claim.
func (c *Coordinator) readHolder(ctx context.Context, principal string, token store.ID) (store.ID, error) {
	workers, err := c.store.WorkersOf(ctx, principal)
	if err != nil {
		return store.ID{}, err
	}
	var ids []store.ID
	for _, w := range workers {
		ids = append(ids, w.ID)
	}
	held, err := c.engine.FindHeldClaims(ctx, ids...)
	if i := slices.IndexFunc(held, func(h engine.HeldClaim) bool { return h.Token == token }); i >= 0 {
		return held[i].Worker, nil
	}
	if err == nil {
		err = store.ErrNotFound
	}
	return store.ID{}, err
}

// findHolder returns the worker of a principal that has a claim, as far as this coordinator knows.
func (c *Coordinator) findHolder(principal string, token store.ID) (worker store.ID, isKnown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, w := range c.workers {
		if _, held := w.claims[token]; held && w.principal == principal {
			return id, true
		}
	}
	return store.ID{}, false
}
