package store

import (
	"github.com/jackc/pgx/v5"
)

// aged: the ready tasks that have waited for too long behind others of higher
// priority, the oldest first. Of each of the lowest priorities the first few are
// looked at, because those behind them are not older; so this costs the same however
// many are waiting.
const agedSQL = `
/* aged {{.Stage.Name}} */
with recursive classes as (
  (select priority, 1 as n from {{.Tasks}} where {{.Stage.Ready ""}} order by priority, id desc limit 1)
   union all
  select higher.priority, n + 1
    from classes
   cross join lateral (select priority from {{.Tasks}} where {{.Stage.Ready ""}} and priority > classes.priority
                        order by priority, id desc limit 1) as higher
   where n < 50
)
select t.id
  from classes
 cross join lateral (select id, created_at, ready_at from {{.Tasks}} where {{.Stage.Ready ""}} and priority = classes.priority
                      order by id limit $2) as t
 where classes.priority < (select priority from {{.Tasks}} where {{.Stage.Ready ""}} order by priority desc, id limit 1)
   and {{.Stage.Waited .Attempts}} > make_interval(secs => $1)
 order by t.id
 limit $2`

// agedAtOnce is how many aged tasks of a stage a sweep finds at the most.
const agedAtOnce = 50

// queueAged finds the aged tasks of all stages, if they are wanted.
func (s *Store) queueAged(batch *pgx.Batch, in SweepRequest, out *SweepResult) {
	if in.AgeAfter <= 0 {
		return
	}
	out.Aged = make([][]ID, len(s.graph.nodes))
	for i := range out.Aged {
		batch.Queue(s.sql.aged[i], in.AgeAfter.Seconds(), agedAtOnce).Query(func(rows pgx.Rows) (err error) {
			out.Aged[i], err = pgx.CollectRows(rows, pgx.RowTo[ID])
			return err
		})
	}
}

// queueAgedClaim claims aged tasks of a stage, before anything else has its slots.
func (t *exchange) queueAgedClaims(stage int) {
	if t.request.Aged == nil || !t.request.ClaimFrom[stage] {
		return
	}
	ids := t.request.Aged[stage]
	ids = ids[:min(len(ids), t.slots(stage))]
	if len(ids) == 0 {
		return
	}
	t.agedSlots[stage] = len(ids)
	t.queueOrigin(originRecorded)
	t.batch.Queue(t.store.sql.claimAged[stage], t.request.Worker, len(ids), ids).Query(func(rows pgx.Rows) error {
		return t.readClaims(rows, stage, func(c Claim) {
			c.Aged = true
			t.result.Claims = append(t.result.Claims, c)
		})
	})
}
