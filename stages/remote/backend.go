package remote

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// clientBackend is a coordinator as the Backend of a Runner.
type clientBackend struct{ *Client }

// Check compares the pipelines.
func (b clientBackend) Check(ctx context.Context) error {
	var theirs pipelineBody
	if err := b.call(ctx, http.MethodGet, "/pipeline", nil, &theirs); err != nil {
		return refusedForGood(b.explainStart(err))
	}
	switch {
	case theirs.Pipeline == "":
		return refusedForGood(b.explainStart(errNotOurs))
	case theirs.Protocol != ProtocolVersion:
		return stages.Permanent(fmt.Errorf("%w: it speaks version %d, and this worker version %d",
			ErrVersion, theirs.Protocol, ProtocolVersion))
	}
	var names []string
	for _, s := range theirs.Stages {
		names = append(names, s.Name)
	}
	if theirs.Pipeline != b.o.Graph.Name() || !slices.Equal(names, b.stages) {
		return stages.Permanent(fmt.Errorf("%w: it serves the pipeline %s with the stages %v, and this program has %s with %v",
			ErrRefused, theirs.Pipeline, names, b.o.Graph.Name(), b.stages))
	}
	return nil
}

// explainStart finds errors of an address at which there is no coordinator, or none to trust.
func (b clientBackend) explainStart(err error) error {
	answer, isAnswer := errors.AsType[*responseError](err)
	untrusted, isUntrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, isPlain := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case isPlain, errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("%w: %s does not speak TLS", ErrNoCoordinator, b.o.URL)
	case errors.Is(err, errNotOurs), isAnswer && answer.kind == "" && answer.status < 500, isAnswer && answer.kind == problem.NotFound:
		return fmt.Errorf("%w: %s", ErrNoCoordinator, b.o.URL)
	case isUntrusted:
		return fmt.Errorf("%w: %w", ErrUntrusted, untrusted.Err)
	}
	return err
}

// refusedForGood marks an error that will not go away.
func refusedForGood(err error) error {
	answer, isAnswer := errors.AsType[*responseError](err)
	switch {
	case isAnswer && answer.Is(ErrKey):
		return stages.Permanent(fmt.Errorf("%w: %w", ErrKey, err))
	case errors.Is(err, ErrRefused):
		return stages.Permanent(err)
	}
	return err
}

// RegisterWorker returns no pauses: the coordinator claims nothing from paused stages, and its first answer says which are.
func (b clientBackend) RegisterWorker(ctx context.Context, w store.Worker) (id store.ID, paused []bool, err error) {
	var out registerResponse
	var own string // this end of the connection
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		own = i.Conn.LocalAddr().String()
	}})
	err = b.call(ctx, http.MethodPost, "/register", registerRequest{
		Protocol: ProtocolVersion, Pipeline: b.o.Graph.Name(), Name: w.Name, Host: w.Host, PID: w.PID,
		ProcessIdentity: w.ProcessIdentity, Version: w.Version, Lease: w.Lease.Seconds(),
		Capabilities: w.Capabilities, Metadata: b.o.Metadata,
	}, &out)
	if answer, ok := errors.AsType[*responseError](err); ok && answer.kind == problem.InvalidRequest {
		err = fmt.Errorf("%w: %w", ErrVersion, err) // it does not know a member of the request
	}
	if err != nil {
		return store.ID{}, nil, refusedForGood(err)
	}
	b.mu.Lock()
	b.worker, b.proxied, b.direct = out.Worker, !out.Direct, out.Direct && out.Peer == own
	b.granted, b.sequence = nil, 0
	clear(b.claims)
	clear(b.free)
	b.mu.Unlock()
	signal(b.registered)
	for _, name := range b.stages { // the first exchange tells the coordinator the free slots
		b.notify(b.o.Graph.Channel(name))
	}
	return out.Worker, nil, nil
}

func (b clientBackend) DeregisterWorker(ctx context.Context, worker store.ID) error {
	return b.call(ctx, http.MethodPost, "/deregister", workerRequest{worker}, nil)
}

func (b clientBackend) ExpireWorkers(ctx context.Context, workers []store.ID) (expired []store.ID, err error) {
	var out expireBody
	err = b.call(ctx, http.MethodPost, "/workers/expire", expireBody{workers}, &out)
	return out.Workers, err
}

// Workers lists the live workers with the same key, as far as a restarted one needs them.
func (b clientBackend) Workers(ctx context.Context, _ bool) (workers []store.Worker, err error) {
	var out ownWorkersResponse
	err = b.call(ctx, http.MethodGet, "/workers", nil, &out)
	for _, w := range out.Workers {
		workers = append(workers, store.Worker{ID: w.Worker, Name: w.Name, Host: w.Host, PID: w.PID, ProcessIdentity: w.ProcessIdentity})
	}
	return workers, err
}

func (b clientBackend) DrainWorker(ctx context.Context, worker store.ID) error {
	return b.call(ctx, http.MethodPost, "/drain", workerRequest{worker}, nil)
}

// Heartbeat sends the worker's claims and their progress. The waiting request is the sign of life
// of a worker that has none.
func (b clientBackend) Heartbeat(ctx context.Context, in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
	b.mu.Lock()
	idle := len(in.Claims) == 0 && in.SkipChecks && b.waits
	controls := b.controls
	b.mu.Unlock()
	if idle {
		return engine.HeartbeatResult{Now: time.Now(), Draining: controls.Drain}, nil
	}
	var out heartbeatResponse
	err := b.call(ctx, http.MethodPost, "/heartbeat", heartbeatRequest{Worker: in.Worker, Running: runningBodies(in)}, &out)
	if err != nil {
		return engine.HeartbeatResult{}, refusedForGood(err)
	}
	result := engine.HeartbeatResult{Now: time.Now(), Draining: out.Control.Drain, Paused: make([]bool, len(b.stages))}
	for i, name := range b.stages {
		result.Paused[i] = slices.Contains(out.Control.Paused, name)
	}
	b.mu.Lock()
	b.controls = out.Control
	b.mu.Unlock()
	result.LostClaims = b.loseClaims(out.Lost)
	return result, nil
}

func runningBodies(in engine.HeartbeatRequest) []runningBody {
	running, progressed := make(map[store.ID]store.Running), make(map[store.ID]bool)
	for _, r := range in.Running {
		running[r.Token] = r
	}
	for _, r := range in.Progressed {
		progressed[r.Token] = true
	}
	bodies := make([]runningBody, 0, len(in.Claims))
	for _, claim := range in.Claims {
		r, started := running[claim.Token]
		bodies = append(bodies, runningBody{
			Token: claim.Token, Percent: r.Percent, Speed: r.Speed, ETA: r.ETA, Note: r.Note,
			Started: started, Progressed: progressed[claim.Token],
		})
	}
	return bodies
}

// loseClaims forgets claims. Nothing is reported of them, so it makes the Runner exchange when their
// slots are free: otherwise the coordinator would not get to know these.
func (b clientBackend) loseClaims(bodies []lostBody) []engine.LostClaim {
	var lost []engine.LostClaim
	var channels []string
	b.mu.Lock()
	for _, l := range bodies {
		lost = append(lost, engine.LostClaim(l))
		if claim, known := b.claims[l.Token]; known {
			channels = append(channels, b.o.Graph.Channel(b.stages[claim.Stage]))
			b.forget(l.Token)
		}
	}
	b.mu.Unlock()
	if len(channels) > 0 {
		b.notify(channels...)
	}
	return lost
}

func (b clientBackend) FindLostClaims(ctx context.Context, claims []engine.Claim) ([]engine.LostClaim, error) {
	b.mu.Lock()
	in := claimsRequest{Worker: b.worker}
	b.mu.Unlock()
	for _, claim := range claims {
		in.Tokens = append(in.Tokens, claim.Token)
	}
	var out claimsResponse
	err := b.call(ctx, http.MethodPost, "/claims/check", in, &out)
	return b.loseClaims(out.Lost), err
}

func (b clientBackend) Result(ctx context.Context, task store.ID, stage string) (json.RawMessage, error) {
	token, err := b.tokenOf(task)
	if err != nil {
		return nil, err
	}
	var raw json.RawMessage
	err = b.call(ctx, http.MethodGet, "/claims/"+token.String()+"/results/"+url.PathEscape(stage), nil, &raw)
	return raw, err
}

// tokenOf returns the token of a claim of a task.
func (b clientBackend) tokenOf(task store.ID) (store.ID, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for token, claim := range b.claims {
		if claim.Task == task {
			return token, nil
		}
	}
	return store.ID{}, fmt.Errorf("%w: this worker has no claim of task %s", store.ErrNotFound, task)
}
