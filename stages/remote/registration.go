package remote

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func (c *Coordinator) pipeline(context.Context, request, struct{}) (pipelineBody, error) {
	body := pipelineBody{Protocol: ProtocolVersion, Pipeline: c.graph.Name()}
	for i, name := range c.stages {
		s := stageBody{Name: name, Needs: []string{}, Divides: c.graph.Divides(i)}
		for _, need := range c.graph.Needs(i) {
			s.Needs = append(s.Needs, c.stages[need])
		}
		body.Stages = append(body.Stages, s)
	}
	return body, nil
}

// tooManyWorkersPause is how long a key with too many workers should wait before the next registration.
const tooManyWorkersPause = 10 * time.Second

// maxLease is the longest lease: for so long a worker that is not heard of keeps its claims.
const maxLease = time.Hour

func (c *Coordinator) register(ctx context.Context, r request, in registerRequest) (registerResponse, error) {
	switch {
	case in.Protocol != ProtocolVersion:
		return registerResponse{}, problem.New(problem.ProtocolVersion,
			"this coordinator speaks version %d of the worker protocol, and the worker version %d; update the older of the two",
			ProtocolVersion, in.Protocol)
	case in.PID < 0 || in.PID > math.MaxInt32:
		return registerResponse{}, problem.New(problem.Invalid, "pid must be between 0 and %d", math.MaxInt32)
	case in.Pipeline != c.graph.Name():
		return registerResponse{}, problem.New(problem.Invalid, "this coordinator serves the pipeline %q, not %q", c.graph.Name(), in.Pipeline)
	}
	row := store.Worker{
		Name: in.Name, Host: cmp.Or(in.Host, "unknown"), PID: in.PID, ProcessIdentity: in.ProcessIdentity, Version: in.Version,
		Lease: cmp.Or(max(seconds(in.Lease), 0), store.DefaultLease), Capabilities: in.Capabilities, Metadata: in.Metadata,
		Principal: r.principal,
	}
	if row.Lease < time.Second || row.Lease > maxLease {
		return registerResponse{}, problem.New(problem.Invalid, "lease_s must be between 1 and %g", maxLease.Seconds())
	}
	if err := checkSizes(in, row); err != nil {
		return registerResponse{}, err
	}
	for _, offer := range row.Offers() {
		if !c.o.MayOffer(r.Request, offer) {
			return registerResponse{}, problem.New(problem.Invalid, "the workers of %s may not offer %q", r.principal, offer)
		}
	}
	id, err := c.engine.RegisterWorkerWithin(ctx, row, c.o.MaxWorkers)
	if errors.Is(err, store.ErrTooManyWorkers) {
		return registerResponse{}, problem.New(problem.TooManyWorkers, "%s has %d workers, its limit; stop some, or use another key",
			r.principal, c.o.MaxWorkers).After(tooManyWorkersPause)
	}
	if store.IsRejected(err) || errors.Is(err, store.ErrInvalidWorker) {
		return registerResponse{}, problem.New(problem.Invalid, "%v", err)
	}
	if err != nil {
		return registerResponse{}, err
	}
	row.ID = id
	c.mu.Lock()
	c.addWorker(c.newWorker(row))
	c.mu.Unlock()
	return registerResponse{
		Protocol: ProtocolVersion, Worker: id, Lease: row.Lease.Seconds(),
		Heartbeat: store.HeartbeatInterval(row.Lease).Seconds(), Direct: c.o.IsDirect(r.Request), Peer: r.RemoteAddr,
	}, nil
}

// Size limits of a registration, in bytes. Every list of the workers has all of it.
const (
	maxWorkerText   = 200
	maxCapabilities = 4 << 10
	maxMetadata     = 4 << 10
)

// checkSizes refuses a registration with more than workers need to say.
func checkSizes(in registerRequest, row store.Worker) error {
	for name, text := range map[string]string{"host": in.Host, "process_identity": in.ProcessIdentity, "version": in.Version} {
		if len(text) > maxWorkerText {
			return problem.New(problem.Invalid, "%s can have at most %d bytes", name, maxWorkerText)
		}
	}
	if len(in.Capabilities) > maxCapabilities {
		return problem.New(problem.Invalid, "capabilities can have at most %d bytes", maxCapabilities)
	}
	if len(in.Metadata) > maxMetadata {
		return problem.New(problem.Invalid, "metadata can have at most %d bytes", maxMetadata)
	}
	if err := row.CheckOffers(); err != nil {
		return problem.New(problem.Invalid, "capabilities: %v", err)
	}
	return nil
}

// deregister releases what the worker still holds: claims that it never got to know.
func (c *Coordinator) deregister(ctx context.Context, w *worker) (noContent, error) {
	held, err := c.engine.FindHeldClaims(ctx, w.id)
	if err == nil && len(held) > 0 {
		reports := make([]engine.Report, len(held))
		for i, claim := range held {
			reports[i] = engine.Report{
				Task: claim.Task, Stage: claim.Stage, Part: claim.Part, Token: claim.Token, Outcome: engine.Released,
				Class: "interrupted", Error: "the worker stopped",
			}
		}
		err = c.withTurn(ctx, w, func() error {
			_, err := c.claimFor(ctx, w, reports, make([]int, c.graph.Queues()), make([]bool, c.graph.Queues()))
			return err
		})
	}
	if err == nil {
		err = c.engine.DeregisterWorker(ctx, w.id)
	}
	if err != nil {
		return noContent{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endWorker(w)
	signal(c.grantNow)
	return noContent{}, nil
}

func (c *Coordinator) drain(ctx context.Context, w *worker) (noContent, error) {
	return noContent{}, c.store.DrainWorker(ctx, w.id)
}

func (c *Coordinator) expireWorkers(ctx context.Context, r request, in expireBody) (expireBody, error) {
	live, err := c.store.FindWorkers(ctx, in.Workers)
	if err != nil {
		return expireBody{}, err
	}
	var ended []store.ID
	for _, w := range live {
		if w.Principal == r.principal {
			ended = append(ended, w.ID)
		}
	}
	c.awaitChecks(ctx, ended)
	expired, err := c.engine.ExpireWorkers(ctx, ended)
	c.endWorkers(expired)
	if err == nil && len(expired) > 0 {
		// Their claims end now, and not with the next sweep of a worker with the database.
		in := engine.SweepRequest{MaxAttempts: make([]int, len(c.stages))}
		for i := range in.MaxAttempts {
			in.MaxAttempts[i] = c.o.Pipeline.MaxAttempts(i)
		}
		_, err = c.engine.Sweep(ctx, in)
	}
	return expireBody{append([]store.ID{}, expired...)}, err
}

func (c *Coordinator) endWorkers(ids []store.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if w := c.workers[id]; w != nil {
			c.endWorker(w)
		}
	}
}
