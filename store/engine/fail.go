package engine

// failSQL ends claims of one stage that were not completed: failed ones are retried later
// or are dead, released ones become pending again, perhaps after a delay. The task is not
// scheduled any more: ready_at says since when it could be claimed.
const failSQL = `
/* fail or release {{.Stage.Name}} */
with locked as materialized (
  select id, {{.Stage.Name}}_token as token, {{.Stage.Name}}_attempts as attempt,
         {{.Stage.Name}}_locked_by as locked_by, {{.Stage.Name}}_locked_at as locked_at
    from {{.Tasks}} where id = any($1::uuid[]) for no key update skip locked
), failed as materialized (
  select locked.*, r.outcome::cuelight_outcome, r.status::cuelight_status, r.retry_in, r.class, r.error
    from locked
    join unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::float8[], $6::text[], $7::text[])
         as r (id, token, outcome, status, retry_in, class, error) on r.id = locked.id and r.token = locked.token
), updated as (
  update {{.Tasks}} t set
         {{.Stage.Name}}_status    = failed.status,
         {{.Stage.Name}}_attempts  = greatest({{.Stage.Name}}_attempts - (failed.outcome = 'released')::int, 0),
         {{.Stage.Name}}_token     = null,
         {{.Stage.Name}}_locked_at = null,
         {{.Stage.Name}}_locked_by = null,
         {{.Stage.Name}}_run_at    =
           case when failed.retry_in > 0 then now() + make_interval(secs => failed.retry_in) end,
         ready_at = coalesce(t.ready_at, t.created_at)
    from failed
   where t.id = failed.id
), history as (
  insert into {{.Attempts}} (task_id, token, stage, attempt, worker_id, started_at, outcome,
                            retry_at, error_class, error)
  select id, token, '{{.Stage.Name}}', attempt, locked_by, locked_at, outcome,
         case when status = 'failed' or retry_in > 0 then now() + make_interval(secs => retry_in) end, class, error
    from failed
)
select token from failed`

func (x *exchange) queueFailures(stage int, reports []*Report) {
	if len(reports) == 0 {
		return
	}
	f, ready := newFailures(reports)
	if ready {
		x.retried[stage] = true
		x.markReady(stage)
	}
	x.queueOrigin(originExchange)
	x.batch.Queue(x.sql.fail[stage], f.ids, f.tokens, f.outcomes, f.statuses, f.retryIn, f.classes, f.errs).Query(x.readApplied)
}
