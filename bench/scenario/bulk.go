package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/bench/result"
)

// Bulker is a contestant that tells what it costs to change so many tasks in one
// statement, per task, by what is done to them.
type TriggerTimer interface {
	TriggerTimes(ctx context.Context, url string, tasks int) (map[string]time.Duration, error)
}

// Bulk is what the triggers take when people change many tasks at once, and when many
// attempts fail.
type Bulk struct {
	Tasks int
}

// Names are those of its figures.
func (Bulk) Names() []string { return []string{"bulk"} }

// Measure measures all, and the slowest of them.
func (s Bulk) Measure(ctx context.Context, t *Trial) error {
	bulker, ok := t.System.(TriggerTimer)
	if !ok {
		return fmt.Errorf("%w: its triggers are not known", errNotHere)
	}
	taken, err := bulker.TriggerTimes(ctx, t.URL, s.Tasks)
	if err != nil {
		return err
	}
	worst := time.Duration(0)
	for act, each := range taken {
		t.Record("bulk", act, "ms", result.FromValue(float64(each)/float64(time.Millisecond)))
		worst = max(worst, each)
	}
	t.Record("bulk", "slowest", "ms", result.FromValue(float64(worst)/float64(time.Millisecond)))
	t.Note("bulk", "the triggers' share of one statement that changes %d tasks, per task", s.Tasks)
	return nil
}
