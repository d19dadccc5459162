package store

import "github.com/jackc/pgx/v5"

// end claims of one stage: failed ones are to be tried again later or are
// dead, released ones are as if they had not been claimed, but may have to wait. The
// task is not scheduled any more: it could be claimed since ready_at, and where that is
// null, since it was submitted.
const failSQL = `
/* end {{.Stage.Name}} */
with locked as materialized (
  select id, {{.Stage.Name}}_token as token, {{.Stage.Name}}_attempts as attempt,
         {{.Stage.Name}}_locked_by as locked_by, {{.Stage.Name}}_locked_at as locked_at
    from {{.Tasks}} where id = any($1::uuid[]) for no key update skip locked
), ended as materialized (
  select locked.*, r.outcome::cuelight_outcome, r.status::cuelight_status, r.retry_in, r.class, r.error
    from locked
    join unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::float8[], $6::text[], $7::text[])
         as r (id, token, outcome, status, retry_in, class, error) on r.id = locked.id and r.token = locked.token
), moved as (
  update {{.Tasks}} t set
         {{.Stage.Name}}_status    = ended.status,
         {{.Stage.Name}}_attempts  = greatest({{.Stage.Name}}_attempts - (ended.outcome = 'released')::int, 0),
         {{.Stage.Name}}_token     = null,
         {{.Stage.Name}}_locked_at = null,
         {{.Stage.Name}}_locked_by = null,
         {{.Stage.Name}}_run_at    = case when ended.retry_in > 0 then now() + make_interval(secs => ended.retry_in) end,
         ready_at = coalesce(t.ready_at, t.created_at)
    from ended
   where t.id = ended.id
), kept as (
  insert into {{.Attempts}} (task_id, token, stage, attempt, worker_id, started_at, outcome, retry_at, error_class, error)
  select id, token, '{{.Stage.Name}}', attempt, locked_by, locked_at, outcome,
         case when status = 'failed' or retry_in > 0 then now() + make_interval(secs => retry_in) end, class, error
    from ended
)
select token from ended`

func (t *exchange) queueFailures(stage int, reports []*Report) {
	if len(reports) == 0 {
		return
	}
	var (
		ids, tokens        []ID
		outcomes, statuses []string
		retryIn            []float64
		classes, errs      []string
	)
	for _, r := range reports {
		status, in := "failed", r.RetryIn.Seconds()
		switch {
		case r.Outcome == Released:
			status = "pending"
		case r.Dead:
			status, in = "dead", 0
		}
		if !r.Dead && in <= 0 {
			t.retried[stage], t.result.MoreReady[stage], t.result.NewlyReady[stage] = true, true, true
		}
		ids, tokens = append(ids, r.Task), append(tokens, r.Token)
		outcomes, statuses, retryIn = append(outcomes, string(r.Outcome)), append(statuses, status), append(retryIn, in)
		classes, errs = append(classes, r.Class), append(errs, cleanText(r.Error))
	}
	t.queueOrigin(originExchange)
	t.batch.Queue(t.store.sql.end[stage], ids, tokens, outcomes, statuses, retryIn, classes, errs).Query(func(rows pgx.Rows) error {
		var token ID
		_, err := pgx.ForEachRow(rows, []any{&token}, func() error {
			t.applied[token] = true
			return nil
		})
		return err
	})
}
