package engine

import (
	"slices"

	"github.com/cuelight/cuelight/store"
)

// completion is the arguments of one completing statement. An update changes a row only
// once, so a task whose stages were completed together has one row here.
type completion struct {
	set      int // of stages, see completeForms; 0 where it is about all
	row      map[store.ID]int
	ids      []store.ID
	unblocks []int32      // the stages that the task may be ready for, as bits
	tokens   [][]store.ID // by stage and row

	// For the history: one element per completed stage.
	tasks, claims []store.ID
	stages        []int32
	results       []*string
}

// completions are one for each set of stages, or several where there are more than maxBatch tasks, or where one stage of
// a task is reported with two tokens, of which only one can be valid.
type completions []*completion

// add adds a report and returns its completion and row. It makes room for max reports.
func (all *completions) add(r *Report, set, stages, max int) (*completion, int) {
	for _, c := range *all {
		if row, known := c.row[r.Task]; c.set == set &&
			(!known && len(c.ids) < maxBatch || known && c.tokens[r.Stage][row].IsZero()) {
			return c, c.add(r)
		}
	}
	c := newCompletion(set, stages, max)
	*all = append(*all, c)
	return c, c.add(r)
}

// minSetReports is how many reports per set of stages make a statement for each set cheaper than one for all.
// Preparing a statement costs about as much as one for all stages computes in vain for 30 rows.
const minSetReports = 32

// merged returns one completion where those of several sets have few reports.
func (all completions) merged(stages int) completions {
	reports := 0
	for _, c := range all {
		reports += len(c.stages)
	}
	if len(all) < 2 || reports >= minSetReports*len(all) {
		return all
	}
	one := newCompletion(0, stages, reports)
	for _, c := range all {
		for i, stage := range c.stages {
			one.addClaim(c.tasks[i], int(stage), c.claims[i], c.results[i])
		}
	}
	return completions{one}
}

// isOnePerSet reports whether no set has several.
func (all completions) isOnePerSet() bool {
	seen := make(map[int]bool, len(all))
	for _, c := range all {
		if seen[c.set] {
			return false
		}
		seen[c.set] = true
	}
	return true
}

func newCompletion(set, stages, size int) *completion {
	c := &completion{
		set: set, row: make(map[store.ID]int, size), ids: make([]store.ID, 0, size), unblocks: make([]int32, 0, size),
		tokens: make([][]store.ID, stages), tasks: make([]store.ID, 0, size), claims: make([]store.ID, 0, size),
		stages: make([]int32, 0, size), results: make([]*string, 0, size),
	}
	for i := range c.tokens {
		c.tokens[i] = make([]store.ID, 0, size)
	}
	return c
}

func (c *completion) add(r *Report) (row int) {
	return c.addClaim(r.Task, r.Stage, r.Token, r.resultText())
}

func (c *completion) addClaim(task store.ID, stage int, token store.ID, result *string) (row int) {
	row, known := c.row[task]
	if !known {
		row = len(c.ids)
		c.row[task] = row
		c.ids = append(c.ids, task)
		c.unblocks = append(c.unblocks, 0)
		for i := range c.tokens {
			c.tokens[i] = append(c.tokens[i], store.ID{})
		}
	}
	c.tokens[stage][row] = token
	c.tasks, c.claims = append(c.tasks, task), append(c.claims, token)
	c.stages, c.results = append(c.stages, int32(stage)), append(c.results, result)
	return row
}

// args are the parameters of a form from $2 on, without those of the ranked form.
func (c *completion) args(f completeForm) (args []any) {
	if f.Single {
		return c.singleArgs(f)
	}
	args = append(args, c.ids)
	for i, tokens := range c.tokens {
		if f.Reported&(1<<i) != 0 {
			args = append(args, tokens)
		}
	}
	return append(args, c.tasks, c.stages, c.claims, c.results)
}

// singleArgs is args for the only task.
func (c *completion) singleArgs(f completeForm) []any {
	args := []any{c.ids[0]}
	var results []any
	for i := range c.tokens {
		if f.Reported&(1<<i) == 0 {
			continue
		}
		var token, result any
		if n := slices.Index(c.stages, int32(i)); n >= 0 {
			token, result = c.claims[n], c.results[n]
		}
		args, results = append(args, token), append(results, result)
	}
	return append(args, results...)
}
