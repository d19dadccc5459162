package report

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// DeadFilter selects dead stages of tasks that are not overridden. Its zero value selects
// all. Empty fields select nothing less.
type DeadFilter struct {
	Stage  string
	Group  string // the Key of a [DeadGroup]
	UserID string
	Source string     // part of the source or the title
	Error  string     // part of the error
	Tasks  []store.ID // only these tasks
}

// DeadGroup is a group of dead stages with similar errors: of the same class, with first
// lines that differ only in numbers, paths, addresses and quoted text.
type DeadGroup struct {
	Key            string // for [DeadFilter].Group
	Stage          string
	Class          string
	Pattern        string // the common part of the first lines
	Example        string // the newest error, up to 4,000 characters
	Count          int
	Oldest, Newest *time.Time // when they died; nil where the history does not say
}

// DeadGroups are the groups of dead stages that a filter selects.
type DeadGroups struct {
	Stages, Groups, Tasks int         // how many there are
	Largest               []DeadGroup // the largest groups
	// More says that more than [MaxDead] tasks are dead; then only the newest are counted.
	More bool
}

// MaxDead is how many dead tasks are read to group, find or count their stages, because
// each error has to be analysed.
const MaxDead = 1000

// DeadStage is a stage of a task that used up its attempts.
type DeadStage struct {
	Task     store.ID
	Source   string
	Title    string // see [store.Task.Title]
	UserID   string
	Stage    string
	Attempts int
	Class    string
	Error    string     // up to 1,000 characters
	DiedAt   *time.Time // nil where the history does not say
	Group    string     // the Key of its [DeadGroup]
}

// deadSQL selects the dead stages of the given tasks, or of the newest $8 dead ones before $7, with the error of
// their last attempt.
const deadSQL = `
with newest as materialized (
  select t.*
    from (select distinct unnest($6::uuid[]) as id
           union all
          (select id from {tasks}
            where $6::uuid[] is null and state = 'dead' and overridden_by is null
              and id < coalesce($7::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
            order by id desc limit $8)) as named
    join {tasks} t on t.id = named.id
   where t.state = 'dead' and t.overridden_by is null
), dead as (
  select t.id, t.source, coalesce(t.params->>'title', '') as title, coalesce(t.user_id, '') as user_id,
         s.stage, s.position
    from newest t
   cross join lateral (select *, row_number() over () as position from cuelight_{name}_stages(t::{tasks})) as s
   where s.status = 'dead'
     and ($1 = '' or s.stage = $1)
     and ($3 = '' or t.user_id = $3)
     and ($4 = '' or strpos(t.source, $4) > 0 or strpos(t.params->>'title', $4) > 0)
), last as (
  select dead.*, coalesce(a.attempt, 0) as attempts, coalesce(a.error_class, '') as class,
         coalesce(a.error, '') as error, a.finished_at as died_at,
         regexp_replace(regexp_replace(left(split_part(coalesce(a.error, ''), E'\n', 1), 400),
           '"[^"]*"|''[^'']*''|[a-z]+://[^ ]+|(^|(?<=[ :=(]))/[^ :]+', '…', 'g'),
           '\m[0-9a-f]{8,}\M|[0-9]+([.:][0-9]+)*', 'N', 'g') as pattern
    from dead
    left join lateral (
         select attempt, error_class, error, finished_at from {attempts} a
          where a.task_id = dead.id and a.stage = dead.stage and a.outcome not in ('released', 'cancelled')
          order by finished_at desc limit 1) as a on true
), classified as (
  select *, left(md5(stage || ' ' || class || ' ' || pattern), 12) as key from last
   where ($5 = '' or strpos(error, $5) > 0)
), chosen as (
  select * from classified where ($2 = '' or key = $2)
)`

const deadGroupsSQL = `/* group dead stages */` + deadSQL + `
select key, stage, class, pattern, count(*), min(died_at), max(died_at),
       max(left(error, 4000)) filter (where newest = 1), sum(count(*)) over (), count(*) over (),
       (select count(distinct id) from chosen), (select count(*) from newest)
  from (select *, row_number() over (partition by stage, class, pattern
                                     order by died_at desc nulls last, id desc) as newest
          from chosen) as ranked
 group by key, stage, position, class, pattern
 order by count(*) desc, position, key
 limit $9`

const deadListSQL = `/* list dead stages */` + deadSQL + `
select bounds.n, bounds.last, dead_stage.*
  from (select count(*) as n, (select id from newest order by id limit 1) as last from newest) as bounds
  left join lateral (
       select id, source, title, user_id, stage, attempts, class, left(error, 1000), died_at, key
         from chosen
        where id < coalesce($7::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        order by id desc
        fetch first $9 rows with ties) as dead_stage on true
 order by id desc`

const deadCountSQL = `/* count dead tasks */` + deadSQL + `
select count(distinct id), (select count(*) from newest) from chosen`

const deadMatchingSQL = `/* find dead tasks */` + deadSQL + `
select distinct id from chosen order by id`

// args are the arguments of deadSQL; limit is how many dead tasks are read, nil for all.
func (f DeadFilter) args(after store.ID, limit any, more ...any) []any {
	return append([]any{f.Stage, f.Group, f.UserID, f.Source, f.Error, f.Tasks, after, limit}, more...)
}

func (r *Reader) check(f DeadFilter) error {
	if _, ok := r.graph.Stage(f.Stage); f.Stage != "" && !ok {
		return fmt.Errorf("dead tasks: %w: %q", store.ErrNoStage, f.Stage)
	}
	return nil
}

// DeadGroups groups dead stages by stage and error. It returns the largest groups, up to
// limit, by default 100. It returns [store.ErrNoStage].
func (r *Reader) DeadGroups(ctx context.Context, f DeadFilter, limit int) (out DeadGroups, err error) {
	if err := r.check(f); err != nil {
		return out, err
	}
	examined := 0
	args := f.args(store.ID{}, MaxDead, cmp.Or(max(limit, 0), 100))
	err = r.read(ctx, deadGroupsSQL, args, func(rows pgx.Rows) (err error) {
		out.Largest, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (g DeadGroup, err error) {
			err = row.Scan(&g.Key, &g.Stage, &g.Class, &g.Pattern, &g.Count, &g.Oldest, &g.Newest, &g.Example,
				&out.Stages, &out.Groups, &out.Tasks, &examined)
			return g, err
		})
		return err
	})
	if err != nil {
		return out, r.explain("read dead tasks", err)
	}
	out.More = f.Tasks == nil && examined >= MaxDead
	if len(out.Largest) == 0 { // no row said how many tasks were read
		_, out.More, err = r.CountDead(ctx, f)
	}
	return out, err
}

// DeadStages lists dead stages, of the newest tasks first: up to limit, by default 100, of
// tasks older than after, and all others of the last of these tasks. next is after of the
// next page, zero for none; a page ends after [MaxDead] tasks, whether they match or not.
// It returns [store.ErrNoStage].
func (r *Reader) DeadStages(
	ctx context.Context, f DeadFilter, after store.ID, limit int,
) (stages []DeadStage, next store.ID, err error) {
	if err := r.check(f); err != nil {
		return nil, store.ID{}, err
	}
	limit = cmp.Or(max(limit, 0), 100)
	examined, last := 0, store.ID{}
	err = r.read(ctx, deadListSQL, f.args(after, MaxDead, limit), func(rows pgx.Rows) (err error) {
		stages, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DeadStage, err error) {
			if row.RawValues()[2] == nil { // nothing matches
				return d, row.Scan(&examined, &last, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil)
			}
			err = row.Scan(&examined, &last, &d.Task, &d.Source, &d.Title, &d.UserID,
				&d.Stage, &d.Attempts, &d.Class, &d.Error, &d.DiedAt, &d.Group)
			return d, err
		})
		return err
	})
	if err != nil {
		return nil, store.ID{}, r.explain("read dead tasks", err)
	}
	stages = slices.DeleteFunc(stages, func(d DeadStage) bool { return d.Task.IsZero() })
	slices.SortStableFunc(stages, func(a, b DeadStage) int {
		i, _ := r.graph.Stage(a.Stage)
		j, _ := r.graph.Stage(b.Stage)
		return cmp.Or(bytes.Compare(b.Task[:], a.Task[:]), i-j)
	})
	switch {
	case len(stages) >= limit:
		next = stages[len(stages)-1].Task
	case f.Tasks == nil && examined >= MaxDead:
		next = last
	}
	return stages, next, nil
}

// CountDead counts the dead tasks that match, among the newest [MaxDead]; more says that
// there are others. It returns [store.ErrNoStage].
func (r *Reader) CountDead(ctx context.Context, f DeadFilter) (n int, more bool, err error) {
	if err := r.check(f); err != nil {
		return 0, false, err
	}
	examined := 0
	err = r.read(ctx, deadCountSQL, f.args(store.ID{}, MaxDead), func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&n, &examined}, func() error { return nil })
		return err
	})
	return n, f.Tasks == nil && examined >= MaxDead, r.explain("count dead tasks", err)
}

// FindDead returns all dead tasks that match, for [store.Store.RetryDead]. It returns
// [store.ErrNoStage].
func (r *Reader) FindDead(ctx context.Context, f DeadFilter) (tasks []store.ID, err error) {
	if err := r.check(f); err != nil {
		return nil, err
	}
	err = r.read(ctx, deadMatchingSQL, f.args(store.ID{}, nil), func(rows pgx.Rows) (err error) {
		tasks, err = pgx.CollectRows(rows, pgx.RowTo[store.ID])
		return err
	})
	return tasks, r.explain("find dead tasks", err)
}
