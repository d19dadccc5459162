package main

import (
	"fmt"
	"slices"
	"strings"
)

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
