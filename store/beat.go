package store

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// beat: the sign of life, and whether somebody else is without one. It does not
// wait for the disk: a beat that is lost with a crash of the server is made good
// by the next. What has moved since the last one is told to the outbox.
const beatSQL = `
/* beat */
with beat as (
  update workers set beat_at = now(), running = $2::text::jsonb, session = coalesce(nullif($6::bigint, 0), session)
   where id = $1 and stopped_at is null and lost_at is null
  returning id, drain_at
), told as (
  insert into {{.Outbox}} (type, worker_id, data)
  select 'progress', id, $7::text::jsonb from beat where $7 is not null
)
select exists (select from beat), (select drain_at is not null from beat), now(),
       exists (select from workers w
                where pipeline = $4 and id <> $1 and stopped_at is null and lost_at is null
                  and ` + goneSQL + `),
       array(select stage from cuelight_pauses where pipeline = $4 and host in ('', (select host from workers where id = $1))),
       set_config('synchronous_commit', 'off', true)`

// gone: a worker w is not there any more. Either its session has ended and it
// has not beaten for the grace, or it has not beaten for its lease; $3 and $5 are
// what is allowed beyond these, in seconds, null for judging nobody. A beat from
// the future was made before the clock was put back.
const goneSQL = `(
         greatest(now() - w.beat_at, w.beat_at - now()) > w.lease + make_interval(secs => $5)
      or (greatest(now() - w.beat_at, w.beat_at - now()) > ` + graceSQL + ` + make_interval(secs => $3)
          and w.session is not null
          and not ` + connectedSQL + `))`

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

// Allowance is how much longer than they may, others can be silent before they
// are given up, because whoever judges them was without the database himself in
// that time, and they may have been, too.
type Allowance struct {
	Grace time.Duration // for those whose sessions have ended; see [Grace]
	Lease time.Duration // for the others
}

// args are the statement's two parameters, in seconds.
func (a *Allowance) args() (grace, lease *float64) {
	if a == nil {
		return nil, nil
	}
	g, l := a.Grace.Seconds(), a.Lease.Seconds()
	return &g, &l
}

// Beat is what a worker says of itself.
type Beat struct {
	Worker ID
	// Session is the key of the advisory lock that the worker holds, shared,
	// on a connection of its own; 0 for none.
	Session int64
	// Judge is how the worker would judge others; nil for not at all.
	Judge *Allowance
	// Claims are to be checked; Running is kept for others to see.
	Claims  []Claim
	Running []Running
	// Moved are those of Running that the outbox is to tell of.
	Moved []Running
}

// Beaten is what a worker hears.
type Beaten struct {
	Lost []ID      // tokens of the claims that are no longer the worker's
	Now  time.Time // the database's clock
	Gone bool      // another worker went away, and is to be given up by [Store.Sweep]
	// Paused says, by stage, that nothing is to be claimed there for now.
	Paused []bool
	// Drain says that the worker is to end its work and stop.
	Drain bool
}

// Beat is a worker's sign of life for all it holds. Claims are lost when they
// were cancelled, retried, or given to somebody else. [ErrWorkerUnknown] says
// that all of them are.
func (s *Store) Beat(ctx context.Context, in Beat) (Beaten, error) {
	// The sign of life does not depend on what is said about the work.
	doing, moved := "[]", (*string)(nil)
	if text, ok := described(in.Running); ok {
		doing = text
	}
	if text, ok := described(in.Moved); ok {
		moved = &text
	}
	var batch pgx.Batch
	var out Beaten
	grace, lease := in.Judge.args()
	batch.Queue(s.sql.beat, in.Worker, doing, grace, s.graph.name, lease, in.Session, moved).QueryRow(func(row pgx.Row) error {
		var known bool
		var drain *bool
		var paused []string
		if err := row.Scan(&known, &drain, &out.Now, &out.Gone, &paused, nil); err != nil {
			return err
		}
		if !known {
			return ErrWorkerUnknown
		}
		out.Drain, out.Paused = *drain, s.graph.paused(paused)
		return nil
	})
	if len(in.Claims) > 0 {
		batch.Queue(settingsSQL, true, madeByTurn)
		s.queueLost(&batch, in.Claims, &out.Lost)
	}
	err := s.db.SendBatch(ctx, &batch).Close()
	return out, s.explain("beat", err)
}

// described is what is said of the work as JSON, where there is any and PostgreSQL
// can hold it.
func described(running []Running) (string, bool) {
	if len(running) == 0 {
		return "", false
	}
	text, err := json.Marshal(running)
	return string(text), err == nil && !bytes.Contains(text, []byte(`\u0000`))
}
