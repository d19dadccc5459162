package engine

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// findLostSQL returns the claims whose tokens are not valid any more. The history has the
// claims that were revoked; a deleted task has no history. The offset keeps PostgreSQL 18 from
// reading the whole history into a hash table.
const findLostSQL = `
/* find lost claims */
select r.token,
       t.id is null or exists (
         select from {{.Attempts}} a
          where a.task_id = r.id and a.token = r.token and a.outcome = 'cancelled' offset 0) as cancelled
  from unnest($1::uuid[], $2::int4[], $3::uuid[]) as r (id, stage, token)
  left join {{.Tasks}} t on t.id = r.id
 where (r.token = case r.stage
       {{- range $i, $s := .Stages}}
         when {{$i}} then t.{{.Name}}_token{{end}} end) is not true`

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
	var ids, tokens, partIDs, partTokens []store.ID
	var stages, parts []int32
	var partStages []string
	for _, c := range claims {
		if c.Part > 0 {
			partIDs, partStages = append(partIDs, c.Task), append(partStages, e.stages[c.Stage])
			parts, partTokens = append(parts, int32(c.Part)), append(partTokens, c.Token)
			continue
		}
		ids, stages, tokens = append(ids, c.Task), append(stages, int32(c.Stage)), append(tokens, c.Token)
	}
	read := func(rows pgx.Rows) error {
		some, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LostClaim])
		*lost = append(*lost, some...)
		return err
	}
	if len(ids) > 0 {
		batch.Queue(e.sql.findLost, ids, stages, tokens).Query(read)
	}
	if len(partIDs) > 0 {
		batch.Queue(e.sql.findLostParts, partIDs, partStages, parts, partTokens).Query(read)
	}
}

const findHeldSQL = `
/* find held claims */
select t.id, held.stage, held.token, held.attempt, t.source, t.params,
       coalesce(t.user_id, ''), coalesce(t.traceparent, ''), held.locked_by,
       0 as part, null::jsonb as spec, held.parts
  from {{.Tasks}} t
 cross join lateral (values
       {{- range $i, $s := .Stages}}{{if $i}},{{end}}
       ({{$i}}, t.{{.Name}}_token, t.{{.Name}}_attempts, t.{{.Name}}_locked_by,
           {{.DividedInto "t."}}){{end}}
       ) as held (stage, token, attempt, locked_by, parts)
 where ({{.Any "t." "inprogress"}})
   and (held.locked_by = any($1::uuid[]) or held.token = $2)
{{- if .HasParts}}
 union all
select t.id, case p.stage{{range $i, $s := .Stages}}{{if .Divides}} when '{{.Name}}' then {{$i}}{{end}}{{end}} end,
       p.token, p.attempts, t.source, t.params, coalesce(t.user_id, ''), coalesce(t.traceparent, ''), p.locked_by,
       p.part, p.spec, case p.stage{{range .Stages}}{{if .Divides}} when '{{.Name}}' then t.{{.Name}}_parts{{end}}{{end}} end
  from {{.Parts}} p
  join {{.Tasks}} t on t.id = p.task_id
 where p.status = 'inprogress' and (p.locked_by = any($1::uuid[]) or p.token = $2)
{{- end}}`

// FindHeldClaims returns the claims that a worker holds in the database. After an error of
// [Engine.Exchange] there may be some that the worker does not know.
func (e *Engine) FindHeldClaims(ctx context.Context, worker store.ID) (claims []Claim, err error) {
	held, err := e.findHeld(ctx, []store.ID{worker}, store.ID{})
	for _, h := range held {
		claims = append(claims, h.Claim)
	}
	return claims, err
}

// FindHolder returns the worker that holds the claim with a token. It returns [store.ErrNotFound] if no
// worker does.
func (e *Engine) FindHolder(ctx context.Context, token store.ID) (store.ID, error) {
	held, err := e.findHeld(ctx, nil, token)
	if err == nil && len(held) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.ID{}, err
	}
	return held[0].worker, nil
}

// heldClaim is a claim and the worker that holds it.
type heldClaim struct {
	Claim
	worker store.ID
}

// findHeld returns the claims of some workers, or the one with a token, which is zero otherwise, as no
// token is.
func (e *Engine) findHeld(ctx context.Context, workers []store.ID, token store.ID) (held []heldClaim, err error) {
	var name store.ID
	if len(workers) > 0 {
		name = workers[0]
	}
	err = e.send(ctx, name, func(batch *pgx.Batch) {
		batch.Queue(e.sql.findHeld, workers, token).Query(collect(&held, func(row pgx.CollectableRow) (h heldClaim, err error) {
			err = row.Scan(&h.Task, &h.Stage, &h.Token, &h.Attempt, &h.Source, &h.Params, &h.UserID, &h.Traceparent, &h.worker,
				&h.Part, &h.Spec, &h.Parts)
			return h, err
		}))
	})
	return held, e.explain("find held claims", err)
}

const findRecordedSQL = `
/* find recorded outcomes */
select a.token
  from unnest($1::uuid[], $2::uuid[], $3::text[]) as r (id, token, outcome)
  join {{.Attempts}} a on a.task_id = r.id and a.token = r.token and a.outcome::text = r.outcome`

// FindRecordedOutcomes returns the tokens of those reports that the history contains. It
// says, after an error of [Engine.Exchange], whether its transaction was committed.
func (e *Engine) FindRecordedOutcomes(ctx context.Context, reports []Report) (map[store.ID]bool, error) {
	var ids, tokens, found []store.ID
	var outcomes []string
	for _, r := range reports {
		ids, tokens, outcomes = append(ids, r.Task), append(tokens, r.Token), append(outcomes, string(r.Outcome))
	}
	err := e.send(ctx, store.ID{}, func(batch *pgx.Batch) {
		batch.Queue(e.sql.findRecorded, ids, tokens, outcomes).Query(collect(&found, pgx.RowTo[store.ID]))
	})
	recorded := make(map[store.ID]bool, len(found))
	for _, token := range found {
		recorded[token] = true
	}
	return recorded, e.explain("find recorded outcomes", err)
}
