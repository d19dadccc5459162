package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
)

// Pause stops claims. Its zero value is for all stages on all hosts.
type Pause struct {
	Stage string    `json:"stage,omitempty"` // empty: all stages
	Host  string    `json:"host,omitempty"`  // empty: all hosts
	At    time.Time `json:"paused_at"`
	By    string    `json:"paused_by,omitempty"` // user or API key
}

const pauseSQL = `
/* pause */
with added as (
  insert into {pauses} (stage, host, paused_by) values ($1, $2, $3) on conflict do nothing returning stage
)
select pg_notify('cuelight_{name}', '') from added where pg_notification_queue_usage() < 0.9`

// Pause stops claims until [Store.Resume], even if workers restart. Running attempts go on.
// Pausing twice changes nothing. It returns [ErrNoStage].
func (s *Store) Pause(ctx context.Context, p Pause) error {
	if _, ok := s.graph.Stage(p.Stage); p.Stage != "" && !ok {
		return fmt.Errorf("pause: %w: %q", ErrNoStage, p.Stage)
	}
	_, err := s.exec(ctx, pauseSQL, p.Stage, statement.CleanText(p.Host), statement.CleanText(p.By))
	return s.explain("pause", err)
}

const resumeSQL = `
/* resume */
with ended as (
  delete from {pauses} where stage = $1 and host = $2 returning stage
)
select stage, case when pg_notification_queue_usage() < 0.9 then pg_notify('cuelight_{name}', '')::text end from ended`

// Resume ends the pause of this Stage and Host; others may still apply. It reports whether
// there was one.
func (s *Store) Resume(ctx context.Context, p Pause) (bool, error) {
	tag, err := s.exec(ctx, resumeSQL, statement.CleanText(p.Stage), statement.CleanText(p.Host))
	return tag.RowsAffected() > 0, s.explain("resume", err)
}

const pausesSQL = `
/* list pauses */
select stage, host, paused_at, paused_by from {pauses} order by host, stage`

// Pauses lists the pauses.
func (s *Store) Pauses(ctx context.Context) ([]Pause, error) {
	return query(ctx, s, "list pauses", pausesSQL, func(row pgx.CollectableRow) (p Pause, err error) {
		err = row.Scan(&p.Stage, &p.Host, &p.At, &p.By)
		return p, err
	})
}

const drainSQL = `
/* drain worker */
with draining as (
  update {workers} set drain_at = coalesce(drain_at, now())
   where id = $1 and stopped_at is null and lost_at is null
  returning id
)
select id, case when pg_notification_queue_usage() < 0.9 then pg_notify($2, '')::text end from draining`

// DrainWorker makes a worker finish its running attempts, however long they take, claim
// nothing more, and stop. The worker is notified at once, and reads it with its next
// heartbeat. It returns [ErrWorkerUnknown].
func (s *Store) DrainWorker(ctx context.Context, worker ID) error {
	tag, err := s.exec(ctx, drainSQL, worker, s.graph.ControlChannel())
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrWorkerUnknown
	}
	return s.explain("drain worker", err)
}
