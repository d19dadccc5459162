package ui

import (
	"fmt"
	"slices"

	"github.com/cuelight/cuelight/store"
)

// layout is where the stages of a pipeline are drawn: in columns, each to the right
// of all it needs.
type pipelineLayout struct {
	stages  []string
	needs   [][]int
	columns []column
}

// column is a number of lanes, one above the other and evenly spread. Behind it are
// the wires to the next.
type column struct {
	lanes []lane
	wires []wire
}

// lane has a stage, or a wire that passes by.
type lane struct {
	stage int // -1 where it only passes by
	from  int // the stage that the wire comes from
	to    int
}

// wire goes from one lane to another, and is lit once its stage is completed.
type wire struct {
	stage    int
	from, to float64 // percent of the height
}

func newPipelineLayout(g store.Graph) pipelineLayout {
	l := pipelineLayout{stages: g.Stages(), needs: make([][]int, len(g.Stages()))}
	for i := range l.stages {
		for _, j := range g.Feeds(i) {
			l.needs[j] = append(l.needs[j], i)
		}
	}
	depths := make([]int, len(l.stages))
	for i := range depths {
		depths[i] = -1
	}
	deepest := 0
	for i := range l.stages {
		deepest = max(deepest, l.depth(depths, i))
	}
	l.columns = make([]column, deepest+1)
	for i, d := range depths {
		l.columns[d].lanes = append(l.columns[d].lanes, lane{stage: i, from: i, to: i})
		for _, need := range l.needs[i] {
			for by := depths[need] + 1; by < d; by++ {
				l.columns[by].lanes = append(l.columns[by].lanes, lane{stage: -1, from: need, to: i})
			}
		}
	}
	for at := range l.columns[1:] {
		l.connect(&l.columns[at], l.columns[at+1])
	}
	return l
}

// depth is the number of the column of a stage.
func (l *pipelineLayout) depth(known []int, i int) int {
	if known[i] < 0 {
		known[i] = 0
		for _, need := range l.needs[i] {
			known[i] = max(known[i], l.depth(known, need)+1)
		}
	}
	return known[i]
}

// connect draws the wires between two columns. A lane is met by the one of the
// column before that has the same wire, or the stage that it comes from.
func (l *pipelineLayout) connect(left *column, right column) {
	for to, r := range right.lanes {
		for from, s := range left.lanes {
			var met bool
			switch {
			case r.stage < 0 && s.stage < 0:
				met = r.from == s.from && r.to == s.to
			case r.stage < 0:
				met = r.from == s.stage
			case s.stage < 0:
				met = s.to == r.stage
			default:
				met = slices.Contains(l.needs[r.stage], s.stage)
			}
			if met {
				left.wires = append(left.wires, wire{s.from, middle(from, len(left.lanes)), middle(to, len(right.lanes))})
			}
		}
	}
}

func middle(i, n int) float64 { return (float64(i) + 0.5) * 100 / float64(n) }

// path is the wire in a box of 20 by 100.
func (w wire) path() string {
	return fmt.Sprintf("M0 %.4gC12 %.4g 8 %.4g 20 %.4g", w.from, w.from, w.to, w.to)
}
