package main

import (
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
			end := executions[0].end
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

// completion returns the completed attempt at a part until then, since a division made it; zero if there is none.
func (v *verifier) completion(key stageKey, until time.Time) attemptRow {
	if made, ok := v.lastDivision(key, until); ok {
		for _, row := range v.completed[key] {
			if !row.finished.Before(made.finished) && !row.finished.After(until) {
				return row
			}
		}
	}
	return attemptRow{}
}

// repeatedCompletions lists stages that were completed twice, and parts, without a division in between that
// made them again.
func (v *verifier) repeatedCompletions() {
	for key, rows := range v.completed {
		completed := make(map[store.ID]int) // by the division
		for _, row := range rows {
			made := division{}
			if key.part > 0 {
				made, _ = v.lastDivision(key, row.finished)
			}
			if completed[made.token]++; completed[made.token] > 1 {
				v.add("%s was completed %d times", key, completed[made.token])
			}
		}
	}
}

// earlyStarts lists executions that started before what they need was done, by the history or by the
// logs: the stages that theirs needs; of a part, its division; of a join, the parts.
func (v *verifier) earlyStarts() {
	for _, e := range v.executions {
		if v.isPurged(e.task) {
			continue
		}
		latest := e.from.Add(clockError)
		check := func(row attemptRow, name, verb string) { // a zero row is none
			needed := v.byToken[row.token]
			switch {
			case row.token.IsZero() || row.finished.After(latest):
				v.add("%s started before %s was %s", e, name, verb)
			case len(needed) == 0 || !needed[0].endedAs(row.outcome) || needed[0].to.After(latest):
				v.add("%s started before the execution of %s had ended", e, name)
			}
		}
		for _, n := range nodes {
			if n.Name != e.stage {
				continue
			}
			for _, need := range n.Needs {
				row := attemptRow{}
				if rows := v.completed[stageKey{e.task, need, 0}]; len(rows) > 0 {
					row = rows[len(rows)-1]
				}
				check(row, need, "completed")
			}
		}
		if e.part == 0 && !e.isJoin {
			continue
		}
		d, _ := v.lastDivision(e.stageKey, latest)
		check(d.attemptRow, e.stage, "divided")
		for part := 1; e.isJoin && part <= d.parts; part++ {
			check(v.completion(stageKey{e.task, e.stage, part}, latest), stageName(e.stage, part), "completed")
		}
	}
}

// wrongJoins lists joins that ended as planned, and did not read exactly the results of the completed
// attempts at all parts; and stages that were completed without a join although they have parts.
func (v *verifier) wrongJoins() {
	for _, e := range v.executions {
		isLeftOut := v.isPurged(e.task) || e.end.How == endedDivided && !e.isJoin
		if e.stage != dividedStage || e.part > 0 || isLeftOut || e.end.How != endedCompleted && e.end.How != endedDivided {
			continue
		}
		latest, n := e.from.Add(clockError), partsOf(e.source)
		if d, ok := v.lastDivision(e.stageKey, latest); ok {
			n = d.parts
		}
		var want []store.ID
		for part := range n {
			want = append(want, v.completion(stageKey{e.task, dividedStage, part + 1}, latest).token)
		}
		if !slices.Equal(e.end.Joined, want) {
			v.add("%s read the results %v, those of the parts are %v", e, e.end.Joined, want)
		}
	}
}
