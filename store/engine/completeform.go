package engine

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// completeForm is one of the forms of completeSQL. PostgreSQL prepares all expressions of a statement for every
// execution, which is most of the cost of an exchange with few reports. So a form is only about the stages
// that may be reported with it, and those that need them. Its parameters are:
//
//   - $1: the worker
//   - $2: the tasks; of a single form, the task
//   - from $3: for each of the reported stages the tokens of the claims by task, null for none; of a single
//     form, the token
//   - from [completeForm.Param](0): four arrays with one element per completed stage: task, stage number, token and
//     result; of a single form, the result for each of the reported stages
//   - from Param(4), of the ranked form: arrays of the free slots by stage, and of whether the exchange also claims
//     there; and the only tasks to claim, or null
type completeForm struct {
	Single bool // for one task
	Ranked bool
	MayEnd bool // the task may have completed all of its stages

	// Sets of stages, as bits: those that may be reported; those that need them; and those whose status matters.
	Reported, Next, Read int

	stages []string
}

// completeForms returns the ranked form and the other one for reports of all stages; and then, for each set of
// stages that the same stages need, one for several tasks, one for a single task and the ranked one. group is the
// number of the set of each stage. disjoint says that no stage needs stages of several sets.
func completeForms(g store.Graph) (forms []completeForm, group []int, disjoint bool) {
	var all []int
	var sets [][]int
	for stage := range g.Stages() {
		n := slices.IndexFunc(sets, func(set []int) bool { return slices.Equal(g.Feeds(set[0]), g.Feeds(stage)) })
		if n < 0 {
			n, sets = len(sets), append(sets, nil)
		}
		sets[n] = append(sets[n], stage)
		all, group = append(all, stage), append(group, n)
	}
	ranked := newCompleteForm(g, all)
	ranked.Ranked = true
	forms = []completeForm{ranked, newCompleteForm(g, all)}
	seen := 0
	disjoint = true
	for _, set := range sets {
		several := newCompleteForm(g, set)
		single, ranked := several, several
		single.Single, ranked.Ranked = true, several.Next != 0
		forms = append(forms, several, single, ranked)
		disjoint = disjoint && seen&several.Next == 0
		seen |= several.Next
	}
	return forms, group, disjoint
}

func newCompleteForm(g store.Graph, reported []int) completeForm {
	f := completeForm{stages: g.Stages()}
	for _, stage := range reported {
		f.Reported |= 1 << stage
		f.MayEnd = f.MayEnd || len(g.Feeds(stage)) == 0
		for _, next := range g.Feeds(stage) {
			f.Next |= 1 << next
			for _, need := range g.Needs(next) {
				f.Read |= 1 << need
			}
		}
	}
	f.Read |= f.Reported | f.Next
	return f
}

// The numbers of the forms that are for all stages, and of the first of those for a set; and the numbers
// of a set's forms.
const rankedForm, allStagesForm, firstSetForm = 0, 1, 2
const severalForm, singleForm, rankedSetForm, setForms = 0, 1, 2, 3

// formFor returns the number of the form for a completion.
func (e *Engine) formFor(c *completion, ranked bool) int {
	group := e.group[c.stages[0]]
	several := slices.ContainsFunc(c.stages, func(stage int32) bool { return e.group[stage] != group })
	first := firstSetForm + setForms*group
	switch {
	case several && ranked:
		return rankedForm
	case several:
		return allStagesForm
	case ranked:
		return first + rankedSetForm
	case len(c.ids) == 1:
		return first + singleForm
	}
	return first + severalForm
}

// Name lists the reported stages.
func (f completeForm) Name() string {
	var names []string
	for i, name := range f.stages {
		if f.Reported&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	text := strings.Join(names, ", ")
	switch {
	case f.Ranked:
		return text + ", ranked"
	case f.Single:
		return text + " of one task"
	}
	return text
}

// Written is the set of stages that change.
func (f completeForm) Written() int { return f.Reported | f.Next }

// Reports says whether a stage may be reported.
func (f completeForm) Reports(stage string) bool { return f.has(f.Reported, stage) }

// Continues says whether tasks may continue with a stage.
func (f completeForm) Continues(stage string) bool { return f.has(f.Next, stage) }

func (f completeForm) has(set int, stage string) bool {
	return set&(1<<slices.Index(f.stages, stage)) != 0
}

// NewValue is the new value of a column: one if the stage is completed, another if the task continues with it.
func (f completeForm) NewValue(stage, column, completed, continued string) string {
	var whens []string
	if f.Reports(stage) {
		whens = append(whens, fmt.Sprintf("when %s_done then %s", stage, completed))
	}
	if f.Continues(stage) {
		whens = append(whens, fmt.Sprintf("when %s_continues then %s", stage, continued))
	}
	const indent = "\n                                    "
	return fmt.Sprintf("case %s else %s_%s end", strings.Join(whens, indent), stage, column)
}

// Param is the number of a parameter after those with the tokens.
func (f completeForm) Param(i int) int { return 3 + bits.OnesCount(uint(f.Reported)) + i }
