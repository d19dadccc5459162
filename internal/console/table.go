package console

import (
	"fmt"
	"slices"
	"strings"
)

// Table prints columns. To fit the terminal it shortens the last column, and if that is
// not enough, the widest of the others.
type Table struct {
	Out    *Stream
	Header []string
	rows   [][]string
	column int               // the one with colours
	colour map[string]string // by text
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Paint sets the colours of a column by its texts.
func (t *Table) Paint(column int, colours map[string]string) { t.column, t.colour = column, colours }

// The minimum widths of cells that are shortened. The last column matters most.
const minCell, minLastCell = 4, 12

// shrink reduces the widths until their sum is at most the limit, as far as it can.
func shrink(widths []int, limit int) {
	sum := 0
	for _, w := range widths {
		sum += w
	}
	last := len(widths) - 1
	for ; sum > limit && widths[last] > minLastCell; sum-- {
		widths[last]--
	}
	for ; sum > limit; sum-- {
		widest := 0
		for i := range widths[:last] {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= minCell {
			return
		}
		widths[widest]--
	}
}

// Write prints the table; nothing if it has no rows.
func (t *Table) Write() error {
	if len(t.rows) == 0 {
		return nil
	}
	widths := make([]int, len(t.Header))
	for _, row := range slices.Concat([][]string{t.Header}, t.rows) {
		for i, cell := range row {
			widths[i] = max(widths[i], Width(cell))
		}
	}
	last := len(widths) - 1
	if t.Out.IsTerminal {
		width, _ := t.Out.Size()
		shrink(widths, width-1-2*last)
	}
	var out strings.Builder
	for n, row := range slices.Concat([][]string{t.Header}, t.rows) {
		var line strings.Builder
		for i, cell := range row {
			text := Fit(cell, widths[i])
			if i == last {
				text = strings.TrimRight(text, " ")
			}
			if n == 0 {
				text = t.Out.Paint(Dim, text)
			} else if i == t.column && t.colour != nil {
				text = t.Out.Paint(t.colour[cell], text)
			}
			line.WriteString(text)
			if i < last {
				line.WriteString("  ")
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := fmt.Fprint(t.Out, out.String())
	return err
}
