package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// DeadFilter chooses dead letters: stages that are dead, of tasks that nothing
// has replaced. Its zero value chooses all.
type DeadFilter struct {
	Stage  string
	Group  string // the Key of a [DeadGroup]
	UserID string
	Source string // part of it, or of the title
	Error  string // part of it
	Tasks  []ID   // only those of these tasks
}

// DeadGroup is a number of dead letters whose errors are alike: they are of the
// same class, and their first lines differ in nothing but numbers, paths,
// addresses and what stands in quotes.
type DeadGroup struct {
	Key            string // names the group, in a [DeadFilter]
	Stage          string
	Class          string
	Pattern        string // what the first lines have in common
	Example        string // the newest error, its first 4,000 characters
	Count          int
	Oldest, Newest *time.Time // when they died; nil where the history does not say
}

// DeadGroups are the groups of dead letters that match a filter.
type DeadGroups struct {
	Letters, Groups int         // how many there are of each
	Tasks           int         // that the letters are of
	Largest         []DeadGroup // some of the groups, the largest first
	// More says that there are more than [DeadAtMost] tasks with dead letters. The
	// newest of them were looked at, and all of the above is of these.
	More bool
}

// DeadAtMost is how many tasks with dead letters are looked at to group, find or count
// them: what errors have in common is worked out for each.
const DeadAtMost = 1000

// DeadStage is a stage of a task that was tried in vain as often as allowed.
type DeadStage struct {
	Task     ID
	Source   string
	Title    string // see [Task.Title]
	UserID   string
	Stage    string
	Attempts int
	Class    string
	Error    string     // its first 1,000 characters
	DiedAt   *time.Time // nil where the history does not say
	Group    string     // the Key of its [DeadGroup]
}

// deadOf: the tasks that dead letters are looked for among: the newest, before $7 where
// that is a place; or those that are named.
const deadOf = `
{{- define "deadof"}}as materialized (
  {{- if .Named}}
  select t.* from (select distinct unnest($6::uuid[]) as id) as named
   cross join lateral (select * from {{.Tasks}} where id = named.id offset 0) as t
   where ({{.Any "t." "dead"}}) and t.overridden_by is null
  {{- else}}
  select * from {{.Tasks}} t where ({{.Any "t." "dead"}}) and t.overridden_by is null
     {{- if .Paged}} and t.id < coalesce($7::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'){{end}}
   order by t.id desc limit {{.DeadAtMost}}
  {{- end}}
){{end}}`

// fillDead writes a statement about dead letters: for those of the newest tasks, and
// for those of tasks that are named.
func fillDead(text string, w templateData) map[bool]string {
	out := make(map[bool]string)
	for _, named := range []bool{false, true} {
		out[named] = fill(deadOf+text, struct {
			templateData
			Named, Paged bool
			DeadAtMost   int
		}{w, named, text == deadListSQL, DeadAtMost})
	}
	return out
}

// dead: of newest, the stages that are dead, with what was said of their last attempt.
const dead = `, dead as (
  select t.id, t.source, coalesce(t.params->>'title', '') as title, coalesce(t.user_id, '') as user_id, by.stage, by.attempts, by.place
    from newest t
   cross join lateral (values
         {{- range $i, $s := .Stages}}{{if $i}},{{end}}
         ('{{.Name}}', t.{{.Name}}_status, t.{{.Name}}_attempts, {{$i}}){{end}}) as by (stage, status, attempts, place)
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
), letters as (
  select *, left(md5(stage || ' ' || class || ' ' || pattern), 12) as key from last
   where ($5 = '' or strpos(error, $5) > 0)
), chosen as (
  select * from letters where ($2 = '' or key = $2)
)`

const deadGroupsSQL = `
/* dead letters by group */
with newest {{template "deadof" .}}` + dead + `
select key, stage, class, pattern, count(*), min(died_at), max(died_at),
       max(left(error, 4000)) filter (where newest = 1), sum(count(*)) over (), count(*) over (),
       (select count(distinct id) from chosen), (select count(*) from newest)
  from (select *, row_number() over (partition by stage, class, pattern order by died_at desc nulls last, id desc) as newest from chosen) as ranked
 group by key, stage, place, class, pattern
 order by count(*) desc, place, key
 limit $7`

const deadListSQL = `
/* dead letters */
with newest {{template "deadof" .}}` + dead + `
select bounds.n, bounds.last, letter.*
  from (select count(*) as n, (select id from newest order by id limit 1) as last from newest) as bounds
  left join lateral (
       select id, source, title, user_id, stage, attempts, class, left(error, 1000), died_at, key
         from chosen
        where id < coalesce($7::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
        order by id desc
        fetch first $8 rows with ties) as letter on true
 order by id desc`

const deadCountSQL = `
/* count dead letters */
with newest {{template "deadof" .}}` + dead + `
select count(distinct id), (select count(*) from newest) from chosen`

const deadMatchingSQL = `
/* find dead letters to retry */
with newest as (
  select * from {{.Tasks}} t where ({{.Any "t." "dead"}}) and t.overridden_by is null
)` + dead + `
select distinct id from chosen order by id`

func (f DeadFilter) args() []any {
	return []any{f.Stage, f.Group, f.UserID, f.Source, f.Error, f.Tasks}
}

func (s *Store) checkDead(f DeadFilter) error {
	if _, ok := s.graph.Stage(f.Stage); f.Stage != "" && !ok {
		return fmt.Errorf("dead letters: %w: %q", ErrNoStage, f.Stage)
	}
	return nil
}

// DeadGroups groups dead letters by stage and error. Of the groups it reads at
// most limit, by default 100. It returns [ErrNoStage].
func (s *Store) DeadGroups(ctx context.Context, f DeadFilter, limit int) (out DeadGroups, err error) {
	if err := s.checkDead(f); err != nil {
		return out, err
	}
	examined := 0
	err = s.read(ctx, s.sql.reads.deadGroups[f.Tasks != nil], append(f.args(), cmp.Or(max(limit, 0), 100)), func(rows pgx.Rows) (err error) {
		out.Largest, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (g DeadGroup, err error) {
			err = row.Scan(&g.Key, &g.Stage, &g.Class, &g.Pattern, &g.Count, &g.Oldest, &g.Newest, &g.Example,
				&out.Letters, &out.Groups, &out.Tasks, &examined)
			return g, err
		})
		return err
	})
	if err != nil {
		return out, s.explain("dead letters", err)
	}
	out.More = f.Tasks == nil && examined >= DeadAtMost
	if len(out.Largest) == 0 { // then nothing said how many were looked at
		_, out.More, err = s.CountDead(ctx, f)
	}
	return out, err
}

// DeadLetters lists dead letters, those of the newest tasks first: at most
// limit, by default 100, of tasks older than after, and the others of the last of
// these tasks. The next page is that after next, which is zero where there is none;
// a page ends after [DeadAtMost] tasks, whether they match or not. It returns
// [ErrNoStage].
func (s *Store) DeadLetters(ctx context.Context, f DeadFilter, after ID, limit int) (letters []DeadStage, next ID, err error) {
	if err := s.checkDead(f); err != nil {
		return nil, ID{}, err
	}
	limit = cmp.Or(max(limit, 0), 100)
	examined, last := 0, ID{}
	err = s.read(ctx, s.sql.reads.deadList[f.Tasks != nil], append(f.args(), after, limit), func(rows pgx.Rows) (err error) {
		letters, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d DeadStage, err error) {
			if row.RawValues()[2] == nil { // nothing matches
				return d, row.Scan(&examined, &last, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil)
			}
			err = row.Scan(&examined, &last, &d.Task, &d.Source, &d.Title, &d.UserID, &d.Stage, &d.Attempts, &d.Class, &d.Error, &d.DiedAt, &d.Group)
			return d, err
		})
		return err
	})
	if err != nil {
		return nil, ID{}, s.explain("dead letters", err)
	}
	letters = slices.DeleteFunc(letters, func(d DeadStage) bool { return d.Task.IsZero() })
	slices.SortStableFunc(letters, func(a, b DeadStage) int {
		i, _ := s.graph.Stage(a.Stage)
		j, _ := s.graph.Stage(b.Stage)
		return cmp.Or(compareIDs(b.Task, a.Task), i-j)
	})
	switch {
	case len(letters) >= limit:
		next = letters[len(letters)-1].Task
	case f.Tasks == nil && examined >= DeadAtMost:
		next = last
	}
	return letters, next, nil
}

// CountDead counts the tasks with dead letters that match, among the newest
// [DeadAtMost]; more says that there are others. It returns [ErrNoStage].
func (s *Store) CountDead(ctx context.Context, f DeadFilter) (n int, more bool, err error) {
	if err := s.checkDead(f); err != nil {
		return 0, false, err
	}
	examined := 0
	err = s.read(ctx, s.sql.reads.deadCount[f.Tasks != nil], f.args(), func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&n, &examined}, func() error { return nil })
		return err
	})
	return n, f.Tasks == nil && examined >= DeadAtMost, s.explain("count dead letters", err)
}
