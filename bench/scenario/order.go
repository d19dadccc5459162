package scenario

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// Order lets one crew do equal tasks that wait for it, with one slot in one stage and
// many in the others: of the tasks in that stage, the most that began before one that
// was submitted earlier.
type Order struct {
	Tasks int
	Slots int // per stage but the one
}

// narrow is the stage with one slot: all of its tasks come from other stages.
const narrow = harness.Assemble

// Names are those of its figures.
func (Order) Names() []string { return []string{"order"} }

// Measure measures it.
func (o Order) Measure(ctx context.Context, t *Trial) error {
	var (
		mu    sync.Mutex
		began []int64
	)
	l := load{tasks: o.Tasks, options: harness.Options{Slots: o.Slots, SingleSlot: []harness.Stage{narrow}}}
	l.watch = func(m harness.Observation) {
		if m.Stage == narrow && m.Kind == harness.Started {
			mu.Lock()
			defer mu.Unlock()
			began = append(began, m.Task)
		}
	}
	if _, err := l.drain(ctx, t); err != nil {
		return err
	}
	t.Record("order", fmt.Sprintf("tasks=%d", o.Tasks), "tasks", result.FromValue(float64(maxDisplacement(began))))
	return nil
}

// displaced is the largest number of later tasks that stand before one.
func maxDisplacement(began []int64) (most int) {
	var before []int64 // what began so far, sorted
	for _, task := range began {
		at, _ := slices.BinarySearch(before, task)
		most = max(most, len(before)-at)
		before = slices.Insert(before, at, task)
	}
	return most
}
