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
select known, draining, overdue, at from cuelight_heartbeat($1, $2::text::jsonb, nullif($3::bigint, 0), $4)`

const workerChecksSQL = `
/* read pauses and expired workers */
select array(select stage from cuelight_pauses
              where pipeline = $2 and host in ('', (select host from workers where id = $1))),
       exists (select from workers w
                where pipeline = $2 and id <> $1 and stopped_at is null and lost_at is null
                  and ` + expiredSQL + `)`

const progressSQL = `
/* record progress */
insert into {{.Outbox}} (type, worker_id, data) values ('progress', $1, $2::text::jsonb)`

// expiredSQL is the condition that a worker w is lost: it missed its heartbeats for its
// lease, or its session has ended and it missed them for the grace. $3 and $4 are the
// outage credits for grace and lease in seconds; null: no worker is lost. A heartbeat in
// the future was made before the clock was set back. clock_timestamp is used because the
// transaction may have waited for a lock since now().
//
// A worker with a new transaction is alive: its heartbeat waits for a lock on its row.
const expiredSQL = `(
         (greatest(clock_timestamp() - w.heartbeat_at, w.heartbeat_at - clock_timestamp())
            > w.lease + make_interval(secs => $4)
       or greatest(clock_timestamp() - w.heartbeat_at, w.heartbeat_at - clock_timestamp())
            > {{.DisconnectGrace "w."}} + make_interval(secs => $3)
          and w.session is not null
          and not {{.Connected "w."}})
     and not exists (
            select from pg_stat_activity b
             where b.datname = current_database() and b.usename = current_user
               and b.application_name = 'cuelight ' || w.id
               and b.xact_start > clock_timestamp() - {{.DisconnectGrace "w."}}))`

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
	row := e.db.QueryRow(ctx, heartbeatSQL, in.Worker, running, in.Session, lockWait(ctx))
	if err := row.Scan(&known, &draining, &overdue, &out.Now); err != nil {
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
	var batch pgx.Batch
	if len(in.Claims) > 0 || len(in.Progressed) > 0 { // an idle worker saves the statement
		e.queueSettings(ctx, &batch, true, originExchange, in.Worker)
	}
	if len(in.Claims) > 0 {
		e.queueFindLost(&batch, in.Claims, &out.LostClaims)
	}
	grace, lease := in.Credit.args()
	batch.Queue(e.sql.workerChecks, in.Worker, e.graph.Name(), grace, lease).QueryRow(func(row pgx.Row) error {
		var paused []string
		err := row.Scan(&paused, &out.WorkerExpired)
		if err == nil {
			out.Paused = e.stageSet(paused)
		}
		return err
	})
	if text, ok := marshalRunning(in.Progressed); ok {
		batch.Queue(e.sql.progress, in.Worker, text)
	}
	return e.db.SendBatch(ctx, &batch).Close()
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
