package store

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

const heartbeatSQL = `
/* heartbeat */
select known, draining, overdue, at from cuelight_heartbeat($1, $2::text::jsonb, nullif($3::bigint, 0), $4)`

// newsSQL: what is not to be claimed, and whether another worker is without a sign
// of life.
const workerNewsSQL = `
/* read what a worker has to know */
select array(select stage from cuelight_pauses where pipeline = $2 and host in ('', (select host from workers where id = $1))),
       exists (select from workers w
                where pipeline = $2 and id <> $1 and stopped_at is null and lost_at is null
                  and ` + expiredSQL + `)`

// progressSQL tells the outbox what has moved since the last heartbeat.
const progressSQL = `
/* tell progress */
insert into {{.Outbox}} (type, worker_id, data) values ('progress', $1, $2::text::jsonb)`

// gone: a worker w is not there any more. Either its session has ended and it
// has not beaten for the grace, or it has not beaten for its lease; $3 and $4 are
// what is allowed beyond these, in seconds, null for judging nobody. A beat from
// the future was made before the clock was put back. The clock is that of the
// moment: whoever asks may have waited for a lock since its transaction began.
//
// A worker that has just begun a transaction lives: somebody has its row locked, so
// that its heartbeat waits.
const expiredSQL = `(
         (greatest(clock_timestamp() - w.heartbeat_at, w.heartbeat_at - clock_timestamp()) > w.lease + make_interval(secs => $4)
       or greatest(clock_timestamp() - w.heartbeat_at, w.heartbeat_at - clock_timestamp()) > ` + graceSQL + ` + make_interval(secs => $3)
          and w.session is not null
          and not ` + connectedSQL + `)
     and not exists (
            select from pg_stat_activity b
             where b.datname = current_database() and b.usename = current_user
               and b.application_name = 'cuelight ' || w.id and b.xact_start > clock_timestamp() - ` + graceSQL + `))`

// grace is how long a worker w whose session has ended may take to come back;
// see [Grace].
const graceSQL = `least(w.lease / 5, interval '7 s')`

// connected: the session of a worker w is open.
const connectedSQL = `exists (
            select from pg_locks l
             where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
               and l.database = (select oid from pg_database where datname = current_database())
               and (l.classid::bigint << 32 | l.objid::bigint) = w.session)`

// Grace is how long a worker whose session has ended, and who does not beat,
// is waited for: 7 s, or a fifth of its lease if that is less.
func Grace(lease time.Duration) time.Duration { return min(lease/5, 7*time.Second) }

// Allowance is how much longer than they may, others can be overdue before they
// are given up, because whoever judges them was without the database himself in
// that time, and they may have been, too.
type OutageCredit struct {
	Grace time.Duration // for those whose sessions have ended; see [Grace]
	Lease time.Duration // for the others
}

// args are the statement's two parameters, in seconds.
func (a *OutageCredit) args() (grace, lease *float64) {
	if a == nil {
		return nil, nil
	}
	g, l := a.Grace.Seconds(), a.Lease.Seconds()
	return &g, &l
}

// Beat is what a worker says of itself.
type HeartbeatRequest struct {
	Worker ID
	// Session is the key of the advisory lock that the worker holds, shared,
	// on a connection of its own; 0 for none.
	Session int64
	// Judge is how the worker would judge others; nil for not at all.
	Credit *OutageCredit
	// Claims are to be checked; Running is kept for others to see.
	Claims  []Claim
	Running []Running
	// Moved are those of Running that the outbox is to tell of.
	Progressed []Running
	// SkipChecks asks for nothing beyond the sign of life, unless another worker is overdue:
	// it is one statement instead of two, for a worker without Claims that is notified
	// of pauses.
	SkipChecks bool
}

// Beaten is what a worker hears.
type HeartbeatResult struct {
	LostClaims    []LostClaim // claims that are no longer the worker's
	Now           time.Time   // the database's clock
	WorkerExpired bool        // another worker went away, and is to be given up by [Store.Sweep]
	// Paused says, by stage, that nothing is to be claimed there for now; nil where
	// that is not known.
	Paused []bool
	// Drain says that the worker is to end its work and stop.
	Draining bool
	// Unchecked says why Lost, Gone and Paused may be incomplete: the database took
	// the sign of life, and did not answer the rest. Their contents are true.
	Unchecked error
}

// Beat is a worker's sign of life for all it holds, and then, in a transaction of
// its own, the question which of that is still its own. Claims are lost when they
// were cancelled, retried, or given to somebody else. [ErrWorkerUnknown] says
// that all of them are. Neither waits for a lock longer than ctx, or two seconds,
// allow.
func (s *Store) Heartbeat(ctx context.Context, in HeartbeatRequest) (HeartbeatResult, error) {
	// The sign of life does not depend on what is said about the work.
	doing := "[]"
	if text, ok := marshalRunning(in.Running); ok {
		doing = text
	}
	var out HeartbeatResult
	var known, overdue bool
	var drain *bool
	row := s.db.QueryRow(ctx, heartbeatSQL, in.Worker, doing, in.Session, lockWait(ctx))
	if err := row.Scan(&known, &drain, &overdue, &out.Now); err != nil {
		return HeartbeatResult{}, s.explain("beat", err)
	}
	if !known {
		return HeartbeatResult{}, s.explain("beat", ErrWorkerUnknown)
	}
	out.Draining = *drain
	if in.SkipChecks && !overdue {
		return out, nil
	}
	out.Unchecked = s.explain("check claims", s.checkClaims(ctx, in, &out))
	return out, nil
}

// checkClaims fills in what it learns, also where it fails in the end.
func (s *Store) checkClaims(ctx context.Context, in HeartbeatRequest, out *HeartbeatResult) error {
	var batch pgx.Batch
	if len(in.Claims) > 0 || len(in.Progressed) > 0 { // who has nothing to do asks for little
		queueSettings(ctx, &batch, true, originExchange, in.Worker)
	}
	if len(in.Claims) > 0 {
		s.queueLost(&batch, in.Claims, &out.LostClaims)
	}
	grace, lease := in.Credit.args()
	batch.Queue(workerNewsSQL, in.Worker, s.graph.name, grace, lease).QueryRow(func(row pgx.Row) error {
		var paused []string
		err := row.Scan(&paused, &out.WorkerExpired)
		if err == nil {
			out.Paused = s.graph.paused(paused)
		}
		return err
	})
	if text, ok := marshalRunning(in.Progressed); ok {
		batch.Queue(s.sql.progress, in.Worker, text)
	}
	return s.db.SendBatch(ctx, &batch).Close()
}

// lockWait is how long a statement may wait for a lock so that it is the server
// that ends the wait, and not ctx, which would cost the connection. In milliseconds.
func lockWait(ctx context.Context) int32 {
	within := 3 * time.Second
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline))
	}
	return int32(max(within*2/3, time.Millisecond).Milliseconds())
}

// marshalRunning returns the work as JSON, where there is any and PostgreSQL
// can hold it.
func marshalRunning(running []Running) (string, bool) {
	if len(running) == 0 {
		return "", false
	}
	all := make([]storedRunning, len(running))
	for i, r := range running {
		all[i] = storedRunning(r)
	}
	text, err := json.Marshal(all)
	return string(text), err == nil && !bytes.Contains(text, []byte(`\u0000`))
}
