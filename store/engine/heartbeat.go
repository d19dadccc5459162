package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

const heartbeatSQL = `
/* heartbeat */
select known, draining, overdue, queue_full, at
  from cuelight_{name}_heartbeat($1, $2::text::jsonb, nullif($3::bigint, 0), $4)`

// checksSQL also records the progress of attempts, for readers of events.
const checksSQL = `
/* read pauses and expired workers, and record progress */
with progress as (
  insert into {outbox} (type, worker_id, data) select 'progress', $1, $2::text::jsonb where $2::text is not null
)
select array(select stage from {pauses} where host in ('', (select host from {workers} where id = $1))),
       exists (select from {workers} w
                where w.id <> $1 and w.stopped_at is null and w.lost_at is null
                     and cuelight_{name}_is_lost(w, $3, $4))`

// OutageCredit is how much longer than their grace and lease workers may miss heartbeats
// before they are lost, because the worker that decides had no connection to the database
// for that long, and the others may have had none either.
type OutageCredit struct {
	DisconnectGrace time.Duration // for workers whose sessions have ended; see [store.DisconnectGrace]
	Lease           time.Duration // for all others
}

// args returns the statement's two parameters, in seconds.
func (c *OutageCredit) args() (grace, lease *float64) {
	if c == nil {
		return nil, nil
	}
	g, l := c.DisconnectGrace.Seconds(), c.Lease.Seconds()
	return &g, &l
}

// HeartbeatRequest is what a worker says about itself.
type HeartbeatRequest struct {
	Worker store.ID
	// Session is the key of the advisory lock that the worker holds, shared, on a
	// connection of its own; 0 for none, which keeps the key before.
	Session int64
	// Credit is the outage credit of other workers; nil: none counts as expired.
	Credit *OutageCredit
	// Claims are checked. Running is stored for operators to see.
	Claims  []Claim
	Running []store.Running
	// Progressed are those of Running that the events should report.
	Progressed []store.Running
	// SkipChecks sends only the heartbeat, one statement instead of two, unless another
	// worker is overdue. It is for workers without Claims that are notified of pauses.
	SkipChecks bool
}

// HeartbeatResult is the database's answer.
type HeartbeatResult struct {
	LostClaims    []LostClaim // claims that the worker no longer holds
	Now           time.Time   // the database's clock
	WorkerExpired bool        // another worker's lease has run out; [Engine.Sweep] expires it
	Draining      bool        // the worker should finish its work and stop
	QueueFull     bool        // the server's notification queue is nearly full, so triggers do not notify
	// Paused says, by stage, that nothing should be claimed; nil where it is not known.
	Paused []bool
	// CheckErr says why LostClaims, WorkerExpired and Paused may be incomplete: the
	// database took the heartbeat but not the rest. What they contain is true.
	CheckErr error
}

// Heartbeat renews the lease of a worker's claims, and then checks in a second transaction
// which of them it still holds. It returns [store.ErrWorkerUnknown] where the worker is
// not registered or was lost, so that it holds none. Neither transaction waits for a lock
// longer than ctx, or two seconds.
func (e *Engine) Heartbeat(ctx context.Context, in HeartbeatRequest) (HeartbeatResult, error) {
	running := "[]"
	if text, ok := marshalRunning(in.Running); ok {
		running = text
	}
	var out HeartbeatResult
	var known, overdue bool
	var draining *bool
	row := e.db.QueryRow(ctx, e.sql.heartbeat, in.Worker, running, in.Session, lockWait(ctx))
	if err := row.Scan(&known, &draining, &overdue, &out.QueueFull, &out.Now); err != nil {
		return HeartbeatResult{}, e.explain("heartbeat", err)
	}
	if !known {
		return HeartbeatResult{}, e.explain("heartbeat", store.ErrWorkerUnknown)
	}
	out.Draining = *draining
	if in.SkipChecks && !overdue {
		return out, nil
	}
	out.CheckErr = e.explain("check claims", e.checkClaims(ctx, in, &out))
	return out, nil
}

// checkClaims sets in out what it reads, even where it fails later.
func (e *Engine) checkClaims(ctx context.Context, in HeartbeatRequest, out *HeartbeatResult) error {
	return e.send(ctx, in.Worker, func(batch *pgx.Batch) {
		if len(in.Claims) > 0 {
			e.queueFindLost(batch, in.Claims, &out.LostClaims)
		}
		grace, lease := in.Credit.args()
		var progressed *string
		if text, ok := marshalRunning(in.Progressed); ok {
			progressed = &text
		}
		batch.Queue(e.sql.checks, in.Worker, progressed, grace, lease).QueryRow(func(row pgx.Row) error {
			var paused []string
			err := row.Scan(&paused, &out.WorkerExpired)
			if err == nil {
				out.Paused = e.stageSet(paused)
			}
			return err
		})
	})
}

// PausedStages says, by stage, whether a worker on the host should claim nothing.
func (e *Engine) PausedStages(ctx context.Context, host string) ([]bool, error) {
	pauses, err := store.New(e.db, e.graph).Pauses(ctx)
	var stages []string
	for _, p := range pauses {
		if p.Host == "" || p.Host == host {
			stages = append(stages, p.Stage)
		}
	}
	return e.stageSet(stages), err
}

// stageSet returns the named stages, or all if one name is empty, by stage.
func (e *Engine) stageSet(names []string) []bool {
	set := make([]bool, len(e.stages))
	for i, name := range e.stages {
		set[i] = slices.Contains(names, "") || slices.Contains(names, name)
	}
	return set
}

// marshalRunning returns the attempts as JSON, if there are any and PostgreSQL can store them.
func marshalRunning(running []store.Running) (string, bool) {
	if len(running) == 0 {
		return "", false
	}
	stored := make([]store.StoredRunning, len(running))
	for i, r := range running {
		stored[i] = store.StoredRunning(r)
	}
	text, err := json.Marshal(stored)
	return string(text), err == nil && !bytes.Contains(text, []byte(`\u0000`))
}
