package engine

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// findClaimsSQL says of claims that their worker does not hold any more how they ended, as the history knows it. A task that was
// deleted has no history.
const findClaimsSQL = `
/* find claims that have ended */
select r.token, coalesce(a.outcome::text, ''), t.id is null
  from unnest($1::uuid[], $2::text[], $3::integer[], $4::uuid[]) as r (task_id, stage, part, token)
  left join {tasks} t on t.id = r.task_id
  left join lateral (select outcome from {attempts} a where a.task_id = r.task_id and a.token = r.token
       limit 1) as a on true
 where not exists (select from {steps} s
                    where s.task_id = r.task_id and s.stage = r.stage and s.part = r.part
                         and s.token = r.token offset 0)`

// endedClaim is a row of findClaimsSQL.
type endedClaim struct {
	Token   store.ID
	Outcome Outcome // empty: not known
	IsGone  bool    // the task is
}

func (c endedClaim) isCancelled() bool { return c.IsGone || c.Outcome == "cancelled" }

// LostClaim is a claim that its worker no longer holds.
type LostClaim struct {
	Token store.ID
	// Cancelled says that the task was cancelled, deleted or retried. Otherwise the claim
	// expired, and another worker may have it.
	Cancelled bool
}

// FindLostClaims returns those of the claims that their worker no longer holds.
func (e *Engine) FindLostClaims(ctx context.Context, claims []Claim) (lost []LostClaim, err error) {
	if len(claims) == 0 {
		return nil, nil
	}
	err = e.send(ctx, store.ID{}, func(batch *pgx.Batch) { e.queueFindLost(batch, claims, &lost) })
	return lost, e.explain("find lost claims", err)
}

func (e *Engine) queueFindLost(batch *pgx.Batch, claims []Claim, lost *[]LostClaim) {
	reports := make([]*Report, len(claims))
	for i, c := range claims {
		reports[i] = &Report{Task: c.Task, Stage: c.Stage, Part: c.Part, Token: c.Token}
	}
	batch.Queue(e.sql.findClaims, e.claimArgs(reports)...).Query(func(rows pgx.Rows) error {
		ended, err := pgx.CollectRows(rows, pgx.RowToStructByPos[endedClaim])
		for _, c := range ended {
			*lost = append(*lost, LostClaim{c.Token, c.isCancelled()})
		}
		return err
	})
}

// FindRecordedOutcomes returns the tokens of those reports that the history contains. It
// says, after an error of [Engine.Exchange], whether its transaction was committed.
func (e *Engine) FindRecordedOutcomes(ctx context.Context, reports []Report) (map[store.ID]bool, error) {
	byToken, all := make(map[store.ID]Outcome, len(reports)), make([]*Report, len(reports))
	for i := range reports {
		all[i], byToken[reports[i].Token] = &reports[i], reports[i].Outcome
	}
	ended, err := e.findEnded(ctx, all)
	recorded := make(map[store.ID]bool, len(ended))
	for _, c := range ended {
		if c.Outcome == byToken[c.Token] {
			recorded[c.Token] = true
		}
	}
	return recorded, e.explain("find recorded outcomes", err)
}

func (e *Engine) findEnded(ctx context.Context, reports []*Report) (ended []endedClaim, err error) {
	if len(reports) == 0 {
		return nil, nil
	}
	err = e.send(ctx, store.ID{}, func(batch *pgx.Batch) {
		batch.Queue(e.sql.findClaims, e.claimArgs(reports)...).Query(collect(&ended, pgx.RowToStructByPos[endedClaim]))
	})
	return ended, err
}

// findHeldSQL reads what claims are about only if $2 says so: it may be large.
const findHeldSQL = `
/* find held claims */
select s.task_id, s.stage, s.part, s.token, s.attempts, s.locked_by,
       extract(epoch from now() - s.locked_at)::float8, s.spec, coalesce(z.parts, 0),
       t.source, t.params, coalesce(t.user_id, ''), coalesce(t.traceparent, '')
  from {steps} s
  left join lateral (select z.parts from {steps} z where z.task_id = s.task_id and z.stage = s.stage
       and z.part = 0 limit 1) as z on true
  left join {tasks} t on t.id = s.task_id and $2
 where s.status = 'running' and s.locked_by = any ($1::uuid[])`

// HeldClaim is a claim in the database and the worker that holds it.
type HeldClaim struct {
	Claim
	Worker store.ID
	Age    time.Duration // since it was made
}

// FindHeldClaims returns the claims that workers hold in the database, without what they are about. After an error of
// [Engine.Exchange] there may be some that the worker does not know.
func (e *Engine) FindHeldClaims(ctx context.Context, workers ...store.ID) ([]HeldClaim, error) {
	return e.findHeld(ctx, workers, false)
}

// ReadClaims is FindHeldClaims of one worker, with what its claims are about.
func (e *Engine) ReadClaims(ctx context.Context, worker store.ID) ([]HeldClaim, error) {
	return e.findHeld(ctx, []store.ID{worker}, true)
}

func (e *Engine) findHeld(ctx context.Context, workers []store.ID, payload bool) (held []HeldClaim, err error) {
	if len(workers) == 0 {
		return nil, nil
	}
	err = e.send(ctx, workers[0], func(batch *pgx.Batch) {
		batch.Queue(e.sql.findHeld, workers, payload).Query(collect(&held, e.scanHeld))
	})
	return held, e.explain("find held claims", err)
}

func (e *Engine) scanHeld(row pgx.CollectableRow) (h HeldClaim, err error) {
	var stage string
	var source, user, traceparent *string
	var age float64
	err = row.Scan(&h.Task, &stage, &h.Part, &h.Token, &h.Attempt, &h.Worker, &age, &h.Spec, &h.Parts, &source, &h.Params,
		&user, &traceparent)
	h.Age = time.Duration(age * float64(time.Second))
	h.Stage, _ = e.graph.Stage(stage)
	if source != nil {
		h.Source, h.UserID, h.Traceparent = *source, *user, *traceparent
	}
	return h, err
}
