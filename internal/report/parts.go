package report

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// PartsProgress is how far a divided stage of a task is, on all hosts together.
type PartsProgress struct {
	Task      store.ID `json:"-"`
	Stage     string   `json:"stage"`
	Parts     int      `json:"parts"`
	Completed int      `json:"completed"`
	Running   int      `json:"running"`
	Hosts     int      `json:"hosts"` // that run them
	Retrying  int      `json:"retrying"`
	Dead      int      `json:"dead"`
	Percent   float64  `json:"percent"`         // negative: not known
	Speed     float64  `json:"speed,omitempty"` // of all that run
	ETA       float64  `json:"eta_s,omitempty"` // seconds left; 0: not known
	Note      string   `json:"note,omitempty"`  // of the only part
	// RetryAt is when the next of those retrying is due.
	RetryAt *time.Time `json:"retry_at,omitempty"`
}

// Activity is the progress in the form of an attempt at the stage.
func (p PartsProgress) Activity() store.Running {
	return store.Running{
		Task: p.Task, Stage: p.Stage, Parts: p.Parts, Percent: p.Percent, Speed: p.Speed, ETA: p.ETA, Note: p.Note,
	}
}

// Counts is "41/121 parts". It is empty for a single part, which is like a stage that is not divided.
func (p PartsProgress) Counts() string {
	if p.Parts == 1 {
		return ""
	}
	return fmt.Sprintf("%d/%d parts", p.Completed, p.Parts)
}

// Others says of the parts that are not completed what happens to them, such as "2 running on 2 hosts, 1 retrying".
func (p PartsProgress) Others() string {
	text := "none running"
	switch {
	case p.Parts == 1:
		return ""
	case p.Running > 0 && p.Hosts > 0:
		text = fmt.Sprintf("%d running on %d %s", p.Running, p.Hosts, map[bool]string{true: "host", false: "hosts"}[p.Hosts == 1])
	case p.Running > 0:
		text = fmt.Sprintf("%d running", p.Running)
	}
	if p.Retrying > 0 {
		text += fmt.Sprintf(", %d retrying", p.Retrying)
	}
	if p.Dead > 0 {
		text += fmt.Sprintf(", %d dead", p.Dead)
	}
	return text
}

// FindParts returns the progress of a divided stage of a task.
func FindParts(all []PartsProgress, task store.ID, stage string) (PartsProgress, bool) {
	for _, p := range all {
		if p.Task == task && p.Stage == stage {
			return p, true
		}
	}
	return PartsProgress{}, false
}

// CompletedParts returns, by stage, where in a task's history the completed attempts at parts are, if there are several.
func CompletedParts(history []store.Attempt) map[string][]int {
	byStage := make(map[string][]int)
	for i, a := range history {
		if a.Part > 0 && a.Outcome == "completed" {
			byStage[a.Stage] = append(byStage[a.Stage], i)
		}
	}
	maps.DeleteFunc(byStage, func(_ string, parts []int) bool { return len(parts) < 2 })
	return byStage
}

// partsSQL reads the parts and the attempts of each task once. A part is dead if it is stopped after an attempt that
// no other one was to follow. Attempts at the parts of an earlier division began before the last one.
const partsSQL = `
/* progress of parts */
select d.task, d.stage, c.n, c.completed, c.retrying, h.dead, c.retry_at,
       coalesce(c.tokens, '{}'), coalesce(c.workers, '{}'), coalesce(c.ages, '{}'), coalesce(h.mean, 0)::float8
  from unnest($1::uuid[], $2::text[]) as d (task, stage)
 cross join lateral (
       select count(*) as n, count(*) filter (where status = 'completed') as completed,
              count(*) filter (where status = 'waiting' or status = 'ready' and attempts > 0) as retrying,
              min(run_at) as retry_at, array_agg(part) filter (where status = 'stopped' and attempts > 0) as stopped,
              array_agg(token order by part) filter (where status = 'running') as tokens,
              array_agg(locked_by order by part) filter (where status = 'running') as workers,
              array_agg(extract(epoch from now() - locked_at)::float8 order by part)
                filter (where status = 'running') as ages
         from {steps} where task_id = d.task and stage = d.stage and part > 0) as c
 cross join lateral (
       select count(*) filter (where nth = 1 and part = any (c.stopped) and outcome in ('failed', 'expired')
                                     and retry_at is null) as dead,
              avg(extract(epoch from finished_at - started_at)) filter (where outcome = 'completed') as mean
         from (select a.*, row_number() over (partition by part order by finished_at desc) as nth,
                      max(started_at) filter (where outcome = 'divided') over () as divided_at
                 from {attempts} a where a.task_id = d.task and a.stage = d.stage) as a
        where part > 0 and started_at >= divided_at) as h
 where c.n > 0`

// partCounts is a row of partsSQL: the parts of a stage, the claims of those in progress, and how many seconds a
// completed one took on average; 0 if none is completed.
type partCounts struct {
	all, completed, retrying, dead int
	retryAt                        *time.Time
	tokens, workers                []store.ID
	ages                           []float64
	mean                           float64
}

// PartsProgress returns the progress of those stages that are divided, or dead after they were. It reads it with one statement,
// and with none if no task has such a stage. Workers returns the workers; it is called at most once.
func (r *Reader) PartsProgress(
	ctx context.Context, tasks []store.Task, workers func(context.Context) ([]store.Worker, error),
) (all []PartsProgress, err error) {
	var ids []store.ID
	var stages []string
	for _, t := range tasks {
		for _, s := range t.Stages {
			if s.Parts != nil && (s.Status == store.StatusDivided || s.Status == store.StatusDead) {
				ids, stages = append(ids, t.ID), append(stages, s.Name)
			}
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	running, err := workers(ctx)
	if err != nil {
		return nil, err
	}
	err = r.read(ctx, partsSQL, []any{ids, stages}, func(rows pgx.Rows) error {
		var p PartsProgress
		var c partCounts
		columns := []any{
			&p.Task, &p.Stage, &c.all, &c.completed, &c.retrying, &c.dead, &c.retryAt, &c.tokens, &c.workers, &c.ages, &c.mean,
		}
		_, err := pgx.ForEachRow(rows, columns, func() error {
			all = append(all, c.progress(p.Task, p.Stage, running))
			return nil
		})
		return err
	})
	return all, r.explain("read the progress of parts", err)
}

// ListedWorkers are workers that were read before, for [Reader.PartsProgress].
func ListedWorkers(workers []store.Worker) func(context.Context) ([]store.Worker, error) {
	return func(context.Context) ([]store.Worker, error) { return workers, nil }
}

// progress computes the progress from what the workers report of the current claims. A report may be older than the
// claim of a part, or still be there when the part is completed.
func (c partCounts) progress(task store.ID, stage string, workers []store.Worker) PartsProgress {
	p := PartsProgress{
		Task: task, Stage: stage, Parts: c.all, Completed: c.completed, Running: len(c.tokens),
		Retrying: c.retrying, RetryAt: c.retryAt, Dead: c.dead,
	}
	reports, hosts := make(map[store.ID]store.Running), make(map[string]bool)
	hostOf := make(map[store.ID]string)
	for _, w := range workers {
		hostOf[w.ID] = cmp.Or(w.Host, w.Name)
		for _, r := range w.Running {
			reports[r.Token] = r
		}
	}
	begun, estimates, estimated := 0.0, 0.0, 0 // in parts, seconds, and parts
	isKnown := true
	for i, token := range c.tokens {
		if host := hostOf[c.workers[i]]; host != "" {
			hosts[host] = true
		}
		r, ok := reports[token]
		if !ok {
			continue // claimed after the worker's last report
		}
		fraction := min(max(r.Percent, 0), 100) / 100
		begun += fraction
		if fraction > 0 {
			estimates, estimated = estimates+c.ages[i]/fraction, estimated+1
		}
		isKnown = isKnown && r.Percent >= 0
		p.Speed += r.Speed
		p.Note = r.Note
	}
	p.Hosts, p.Percent = len(hosts), 100*(float64(c.completed)+begun)/float64(c.all)
	if c.mean == 0 && estimated > 0 {
		c.mean = estimates / float64(estimated)
	}
	if p.Running > 0 {
		p.ETA = c.mean * max(float64(c.all-c.completed)-begun, 0) / float64(p.Running)
	}
	switch {
	case c.all > 1:
		p.Note = ""
	case !isKnown:
		p.Percent = -1 // as of a stage that is not divided
	}
	return p
}
