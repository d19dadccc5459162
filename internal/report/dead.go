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

// deadOf selects the dead tasks to read: the given ones, or the newest, before $7 where a
// page is read.
const deadOf = `
{{- define "deadof"}}as materialized (
  {{- if .With.Given}}
  select t.* from (select distinct unnest($6::uuid[]) as id) as given
   cross join lateral (select * from {{.Tasks}} where id = given.id offset 0) as t
   where ({{.Any "t." "dead"}}) and t.overridden_by is null
  {{- else}}
  select * from {{.Tasks}} t where ({{.Any "t." "dead"}}) and t.overridden_by is null
     {{- if .With.Paged}} and t.id < coalesce($7::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'){{end}}
   order by t.id desc limit {{.With.MaxDead}}
  {{- end}}
){{end}}`

// fillDead returns the two forms of a statement: for the newest dead tasks, and for given tasks.
func fillDead(g store.Graph, text string) map[bool]string {
	forms := make(map[bool]string)
	for _, given := range []bool{false, true} {
		forms[given] = g.SQL(deadOf+text, deadForm{given, text == deadListSQL, MaxDead})
	}
	return forms
}

type deadForm struct {
	Given, Paged bool
	MaxDead      int
}

// deadSQL selects the dead stages of these tasks, with the error of their last attempt.
const deadSQL = `, dead as (
  select t.id, t.source, coalesce(t.params->>'title', '') as title, coalesce(t.user_id, '') as user_id,
         by.stage, by.attempts, by.position
    from newest t
   cross join lateral (values
         {{- range $i, $s := .Stages}}{{if $i}},{{end}}
         ('{{.Name}}', t.{{.Name}}_status, t.{{.Name}}_attempts, {{$i}}){{end}})
         as by (stage, status, attempts, position)
   where by.status = 'dead'
     and ($1 = '' or by.stage = $1)
     and ($3 = '' or t.user_id = $3)
     and ($4 = '' or strpos(t.source, $4) > 0 or strpos(t.params->>'title', $4) > 0)
     and ($6::uuid[] is null or t.id = any($6))
), last as (
  select dead.*, coalesce(a.error_class, '') as class, coalesce(a.error, '') as error, a.finished_at as died_at,
         regexp_replace(regexp_replace(left(split_part(coalesce(a.error, ''), E'\n', 1), 400),
           '"[^"]*"|''[^'']*''|[a-z]+://[^ ]+|(^|(?<=[ :=(]))/[^ :]+', '…', 'g'),
           '\m[0-9a-f]{8,}\M|[0-9]+([.:][0-9]+)*', 'N', 'g') as pattern
    from dead
    left join lateral (
         select error_class, error, finished_at from {{.Attempts}} a
          where a.task_id = dead.id and a.stage = dead.stage and a.outcome not in ('released', 'cancelled')
          order by finished_at desc limit 1) as a on true
), classified as (
  select *, left(md5(stage || ' ' || class || ' ' || pattern), 12) as key from last
   where ($5 = '' or strpos(error, $5) > 0)
), chosen as (
  select * from classified where ($2 = '' or key = $2)
)`

const deadGroupsSQL = `
/* group dead stages */
with newest {{template "deadof" .}}` + deadSQL + `
select key, stage, class, pattern, count(*), min(died_at), max(died_at),
       max(left(error, 4000)) filter (where newest = 1), sum(count(*)) over (), count(*) over (),
       (select count(distinct id) from chosen), (select count(*) from newest)
  from (select *, row_number() over (partition by stage, class, pattern
                                     order by died_at desc nulls last, id desc) as newest
          from chosen) as ranked
 group by key, stage, position, class, pattern
 order by count(*) desc, position, key
 limit $7`

const deadListSQL = `
/* list dead stages */
with newest {{template "deadof" .}}` + deadSQL + `
select bounds.n, bounds.last, dead_stage.*
  from (select count(*) as n, (select id from newest order by id limit 1) as last from newest) as bounds
  left join lateral (
       select id, source, title, user_id, stage, attempts, class, left(error, 1000), died_at, key
         from chosen
        where id < coalesce($7::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        order by id desc
        fetch first $8 rows with ties) as dead_stage on true
 order by id desc`

const deadCountSQL = `
/* count dead tasks */
with newest {{template "deadof" .}}` + deadSQL + `
select count(distinct id), (select count(*) from newest) from chosen`

const deadMatchingSQL = `
/* find dead tasks */
with newest as (
  select * from {{.Tasks}} t where ({{.Any "t." "dead"}}) and t.overridden_by is null
)` + deadSQL + `
select distinct id from chosen order by id`

func (f DeadFilter) args() []any {
	return []any{f.Stage, f.Group, f.UserID, f.Source, f.Error, f.Tasks}
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
	args := append(f.args(), cmp.Or(max(limit, 0), 100))
	err = r.read(ctx, r.deadGroups[f.Tasks != nil], args, func(rows pgx.Rows) (err error) {
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
	err = r.read(ctx, r.deadList[f.Tasks != nil], append(f.args(), after, limit), func(rows pgx.Rows) (err error) {
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
	err = r.read(ctx, r.deadCount[f.Tasks != nil], f.args(), func(rows pgx.Rows) error {
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
	err = r.read(ctx, r.deadMatching, f.args(), func(rows pgx.Rows) (err error) {
		tasks, err = pgx.CollectRows(rows, pgx.RowTo[store.ID])
		return err
	})
	return tasks, r.explain("find dead tasks", err)
}
