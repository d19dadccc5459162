package store

// completions are the completed stages of a turn as the columns that complete
// takes, one row per task: an update applies one row of its source to a row of
// the table, so a task that comes twice would lose one of its stages.
type completions struct {
	row     map[ID]int
	ids     []ID
	chain   []int32
	tokens  [][]ID      // by stage and row
	results [][]*string // by stage and row
}

func newCompletions(stages, most int) *completions {
	c := &completions{
		row:     make(map[ID]int, most),
		tokens:  make([][]ID, stages),
		results: make([][]*string, stages),
	}
	return c
}

// add takes one report and returns the row it is in.
func (c *completions) add(r *Report) int {
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
	return row
}

func (c *completions) args(worker ID) []any {
	args := []any{worker, c.ids, c.chain}
	for i := range c.tokens {
		args = append(args, c.tokens[i], c.results[i])
	}
	return args
}
