package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/store"
)

func (c *cli) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks, newest first",
		Long: `List lists tasks, newest first. The last column but one says where a task is: the
stages that are being worked on, or that failed. With --json every task is one
line with all there is, as the HTTP API has it.

On a terminal ids are shortened; their ends can be used like ids.`,
		Args: noArguments,
	}
	filter := addFilterFlags(cmd)
	limit := cmd.Flags().Int("limit", 100, "at most so many tasks")
	after := cmd.Flags().String("after", "", "only tasks older than the one with this id, for the next page")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := filter.filter()
		if err != nil {
			return err
		}
		if *limit < 1 {
			return usagef("--limit %d: it is at least 1", *limit)
		}
		f.Limit = *limit
		err = c.withTasks(cmd.Context(), func(db *database) error {
			return c.list(cmd.Context(), db, f, *after)
		})
		return c.orNothing(err)
	}
	return cmd
}

func (c *cli) list(ctx context.Context, db *database, f store.Filter, after string) (err error) {
	if after != "" {
		if f.After, err = db.store.Find(ctx, strings.ToLower(after)); err != nil {
			return err
		}
	}
	tasks, err := db.store.List(ctx, f)
	if err != nil {
		return err
	}
	if len(tasks) == 0 {
		fmt.Fprintln(c.err, "cuelight: no tasks")
		return nil
	}
	if c.json {
		for _, t := range tasks {
			if err := c.writeJSON(t); err != nil {
				return err
			}
		}
		return nil
	}
	t := table{to: c.out, head: []string{"ID", "AGE", "STATUS", "AT", "SOURCE"}}
	for _, task := range tasks {
		id := task.ID.String()
		if c.out.terminal {
			id = shortID(task.ID)
		}
		t.add(id, span(time.Since(task.CreatedAt)), string(task.Status), whereabouts(task), shownTask(task))
	}
	t.paint(2, statusColours)
	if err := t.write(); err != nil {
		return err
	}
	if len(tasks) == f.Limit {
		fmt.Fprintf(c.err, "cuelight: there may be more: --limit, or --after %s\n", shortID(tasks[len(tasks)-1].ID))
	}
	return nil
}

// whereabouts names the stages at which a task is.
func whereabouts(t store.Task) string {
	for _, status := range []store.Status{store.StatusDead, store.StatusInProgress, store.StatusFailed} {
		var at []string
		for _, s := range t.Stages {
			if s.Status == status {
				at = append(at, s.Name)
			}
		}
		if len(at) > 0 {
			return strings.Join(at, "+")
		}
	}
	if next := nextStages(t); len(next) > 0 {
		return strings.Join(next, "+") + " next"
	}
	return "-"
}

// nextStages are those that wait for a worker and nothing else.
func nextStages(t store.Task) (next []string) {
	graph := store.Video()
	blocked := make(map[int]bool)
	for i, s := range t.Stages {
		if s.Status != store.StatusCompleted {
			for _, j := range graph.Feeds(i) {
				blocked[j] = true
			}
		}
	}
	for i, s := range t.Stages {
		if s.Status == store.StatusPending && !blocked[i] {
			next = append(next, s.Name)
		}
	}
	return next
}

var statusColours = map[string]string{
	string(store.StatusCompleted): green, string(store.StatusDead): red, string(store.StatusFailed): yellow, string(store.StatusCancelled): dim,
}

// table writes columns, fitted to the terminal by shortening the last one and, where
// that is not enough, the widest of the others.
type table struct {
	to     *stream
	head   []string
	rows   [][]string
	column int // to be coloured, by what it says
	colour map[string]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) paint(column int, colours map[string]string) { t.column, t.colour = column, colours }

// The least columns that a cell is shortened to: the last one says most.
const leastCell, leastLastCell = 4, 12

// shrink makes the widths add up to most, if they can.
func shrink(widths []int, most int) {
	sum := 0
	for _, w := range widths {
		sum += w
	}
	last := len(widths) - 1
	for ; sum > most && widths[last] > leastLastCell; sum-- {
		widths[last]--
	}
	for ; sum > most; sum-- {
		widest := 0
		for i := range widths[:last] {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= leastCell {
			return
		}
		widths[widest]--
	}
}

func (t *table) write() error {
	if len(t.rows) == 0 {
		return nil
	}
	widths := make([]int, len(t.head))
	for _, row := range slices.Concat([][]string{t.head}, t.rows) {
		for i, cell := range row {
			widths[i] = max(widths[i], textWidth(cell))
		}
	}
	last := len(widths) - 1
	if t.to.terminal {
		width, _ := t.to.size()
		shrink(widths, width-1-2*last)
	}
	var out strings.Builder
	for n, row := range slices.Concat([][]string{t.head}, t.rows) {
		var line strings.Builder
		for i, cell := range row {
			text := fit(cell, widths[i])
			if i == last {
				text = strings.TrimRight(text, " ")
			}
			if n == 0 {
				text = t.to.paint(dim, text)
			} else if i == t.column && t.colour != nil {
				text = t.to.paint(t.colour[cell], text)
			}
			line.WriteString(text)
			if i < last {
				line.WriteString("  ")
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := fmt.Fprint(t.to, out.String())
	return err
}
