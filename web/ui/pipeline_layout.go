package ui

import (
	"fmt"
	"slices"

	"github.com/cuelight/cuelight/store"
)

// pipelineLayout places the stages of a pipeline in columns. Each stage is to the right
// of all stages that it needs.
type pipelineLayout struct {
	stages  []string
	divided []string // the stages that may be divided into parts
	needs   [][]int
	columns []column
}

// column is a stack of evenly spread lanes, with the wires to the next column.
type column struct {
	lanes []lane
	wires []wire
}

// lane holds a stage, or a wire that passes through the column.
type lane struct {
	stage    int // -1 for a wire
	from, to int // the stages that the wire connects; both are the stage of another lane
}

// wire connects two lanes.
type wire struct {
	stage    int     // where it starts
	from, to float64 // percent of the height
}

func newPipelineLayout(g store.Graph) pipelineLayout {
	l := pipelineLayout{stages: g.Stages(), needs: make([][]int, len(g.Stages()))}
	for i, name := range l.stages {
		if g.Divides(i) {
			l.divided = append(l.divided, name)
		}
		for _, j := range g.Feeds(i) {
			l.needs[j] = append(l.needs[j], i)
		}
	}
	columnOf := make([]int, len(l.stages))
	for range l.stages { // at most as often as the longest chain is long
		for i, needs := range l.needs {
			for _, need := range needs {
				columnOf[i] = max(columnOf[i], columnOf[need]+1)
			}
		}
	}
	l.columns = make([]column, slices.Max(columnOf)+1)
	for i, own := range columnOf {
		l.columns[own].lanes = append(l.columns[own].lanes, lane{i, i, i})
		for _, need := range l.needs[i] {
			for c := columnOf[need] + 1; c < own; c++ {
				l.columns[c].lanes = append(l.columns[c].lanes, lane{-1, need, i})
			}
		}
	}
	for i := range l.columns[1:] {
		l.connect(&l.columns[i], l.columns[i+1])
	}
	return l
}

// connect adds the wires between two columns.
func (l *pipelineLayout) connect(left *column, right column) {
	for to, r := range right.lanes {
		for from, s := range left.lanes {
			if l.isConnected(s, r) {
				start, end := center(from, len(left.lanes)), center(to, len(right.lanes))
				left.wires = append(left.wires, wire{s.from, start, end})
			}
		}
	}
}

// isConnected reports whether a lane leads to a lane of the next column.
func (l *pipelineLayout) isConnected(left, right lane) bool {
	switch {
	case left.stage < 0 && right.stage < 0:
		return left.from == right.from && left.to == right.to
	case right.stage < 0:
		return left.stage == right.from
	case left.stage < 0:
		return left.to == right.stage
	}
	return slices.Contains(l.needs[right.stage], left.stage)
}

// center returns the middle of lane i of n, in percent of the height.
func center(i, n int) float64 { return (float64(i) + 0.5) * 100 / float64(n) }

// path is the wire in a box of 20 by 100.
func (w wire) path() string {
	return fmt.Sprintf("M0 %.4gC12 %.4g 8 %.4g 20 %.4g", w.from, w.from, w.to, w.to)
}
