package store

// completion is the completed stages of a turn as the columns that complete
// takes, one row per task: an update applies one row of its source to a row of
// the table, so a task that comes twice would lose one of its stages.
type completion struct {
	row     map[ID]int
	ids     []ID
	chain   []int32
	tokens  [][]ID      // by stage and row
	results [][]*string // by stage and row
}

// completions are one completion, or more where a stage of a task is reported
// twice, with the token that holds and with one that no longer does.
type completions []*completion

// place is a row of a completion.
type place struct {
	*completion
	row int
}

// add takes one report.
func (all *completions) add(r *Report, stages int) place {
	for _, c := range *all {
		if row, known := c.row[r.Task]; !known || c.tokens[r.Stage][row].IsZero() {
			return c.add(r)
		}
	}
	c := &completion{row: make(map[ID]int), tokens: make([][]ID, stages), results: make([][]*string, stages)}
	*all = append(*all, c)
	return c.add(r)
}

func (c *completion) add(r *Report) place {
	row, known := c.row[r.Task]
	if !known {
		row = len(c.ids)
		c.row[r.Task] = row
		c.ids = append(c.ids, r.Task)
		c.chain = append(c.chain, 0)
		for i := range c.tokens {
			c.tokens[i] = append(c.tokens[i], ID{})
			c.results[i] = append(c.results[i], nil)
		}
	}
	c.tokens[r.Stage][row] = r.Token
	if r.Result != nil {
		text := string(r.Result)
		c.results[r.Stage][row] = &text
	}
	return place{c, row}
}

func (c *completion) args(worker ID) []any {
	args := []any{worker, c.ids, c.chain}
	for i := range c.tokens {
		args = append(args, c.tokens[i], c.results[i])
	}
	return args
}
