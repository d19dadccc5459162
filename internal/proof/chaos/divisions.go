package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// division is one time that a stage was divided, or divided again by its join: a row of the history, and what its
// execution says of the parts.
type division struct {
	attemptRow
	parts int
	kept  []int
}

// makes reports whether a part was to be done after the division.
func (d division) makes(part int) bool { return part <= d.parts && !slices.Contains(d.kept, part) }

// findDivisions fills divisions. Rows without an execution break a rule of their own.
func (v *verifier) findDivisions() {
	for _, row := range v.history {
		if executions := v.byToken[row.token]; row.outcome == string(engine.Divided) && len(executions) > 0 {
			end := executions[0].ending
			v.divisions[row.task] = append(v.divisions[row.task], division{row, end.Count, end.Kept})
		}
	}
}

// lastDivision returns the last division of a stage until then; of a part, the last one that made it.
func (v *verifier) lastDivision(key stageKey, until time.Time) (last division, ok bool) {
	for _, d := range v.divisions[key.task] {
		if !d.finished.After(until) && (key.part == 0 || d.makes(key.part)) {
			last, ok = d, true
		}
	}
	return last, ok
}

// completion returns the completed attempt at a part until then, since a division made it.
func (v *verifier) completion(key stageKey, until time.Time) (row attemptRow, ok bool) {
	made, ok := v.lastDivision(key, until)
	if !ok {
		return attemptRow{}, false
	}
	rows := v.completed[key]
	i := slices.IndexFunc(rows, func(r attemptRow) bool { return !r.finished.Before(made.finished) && !r.finished.After(until) })
	if i < 0 {
		return attemptRow{}, false
	}
	return rows[i], true
}

// repeatedCompletions lists stages that were completed twice, and parts, without a division in between that
// made them again.
func (v *verifier) repeatedCompletions() (found []string) {
	type time struct {
		stageKey
		division store.ID
	}
	completed := make(map[time]int)
	for key, rows := range v.completed {
		for _, row := range rows {
			made := division{}
			if key.part > 0 {
				made, _ = v.lastDivision(key, row.finished)
			}
			completed[time{key, made.token}]++
		}
	}
	for key, n := range completed {
		if n > 1 {
			found = append(found, fmt.Sprintf("%s was completed %d times", key.stageKey, n))
		}
	}
	return found
}

// earlyStarts lists executions that started before what they need was done, by the history or by the
// logs: the stages that theirs needs; of a part, its division; of a join, the parts.
func (v *verifier) earlyStarts() (found []string) {
	for _, e := range v.executions {
		if v.isPurged(e.start.Task) {
			continue
		}
		latest := e.from.Add(clockError)
		check := func(row attemptRow, ok bool, name, verb string) {
			needed := v.byToken[row.token]
			switch {
			case !ok || row.finished.After(latest):
				found = append(found, fmt.Sprintf("%s started before %s was %s", e, name, verb))
			case len(needed) == 0 || !needed[0].endedAs(row.outcome) || needed[0].to.After(latest):
				found = append(found, fmt.Sprintf("%s started before the execution of %s had ended", e, name))
			}
		}
		for _, need := range v.needs[e.start.Stage] {
			rows := v.completed[stageKey{e.start.Task, need, 0}]
			check(lastOf(rows), len(rows) > 0, need, "completed")
		}
		if e.start.Part == 0 && !e.start.IsJoin {
			continue
		}
		d, ok := v.lastDivision(e.key(), latest)
		check(d.attemptRow, ok, e.start.Stage, "divided")
		for part := 1; e.start.IsJoin && part <= d.parts; part++ {
			row, ok := v.completion(stageKey{e.start.Task, e.start.Stage, part}, latest)
			check(row, ok, stageName(e.start.Stage, part), "completed")
		}
	}
	return found
}

// wrongJoins lists joins that ended as planned, and did not read exactly the results of the completed
// attempts at all parts; and stages that were completed without a join although they have parts.
func (v *verifier) wrongJoins() (found []string) {
	for _, e := range v.executions {
		isLeftOut := v.isPurged(e.start.Task) || e.end == endedDivided && !e.start.IsJoin
		if e.start.Stage != dividedStage || e.start.Part > 0 || isLeftOut || e.end != endedCompleted && e.end != endedDivided {
			continue
		}
		latest, n := e.from.Add(clockError), partsOf(e.start.Source)
		if d, ok := v.lastDivision(e.key(), latest); ok {
			n = d.parts
		}
		var want []store.ID
		for part := range n {
			row, _ := v.completion(stageKey{e.start.Task, dividedStage, part + 1}, latest)
			want = append(want, row.token)
		}
		if !slices.Equal(e.ending.Joined, want) {
			found = append(found, fmt.Sprintf("%s read the results %v, those of the parts are %v", e, e.ending.Joined, want))
		}
	}
	return found
}

// lastOf returns the last row; none is zero.
func lastOf(rows []attemptRow) (row attemptRow) {
	if len(rows) > 0 {
		row = rows[len(rows)-1]
	}
	return row
}
