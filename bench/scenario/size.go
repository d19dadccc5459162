package scenario

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/bench/contest"
	"github.com/cuelight/cuelight/bench/result"
)

// Sizer is a contestant that tells how many bytes its tasks take: the table,
// its indexes, and the history with its own.
type Sizer interface {
	Sizes(ctx context.Context, url string) (table, index, history int64, err error)
}

// Size is how much room the database takes per million tasks: that of the tasks
// which were drained, times as many as make a million. It is taken as the drain
// leaves it, with the versions of rows that nobody needs any more, all of whose
// room is for later rows; where tasks come one by one there are fewer of those.
type Size struct {
	Tasks int
	Slots int // per stage
}

// Names are those of its figures.
func (Size) Names() []string { return []string{"size"} }

// Measure measures all three.
func (s Size) Measure(ctx context.Context, t *Trial) error {
	sizer, ok := t.Contestant.(Sizer)
	if !ok {
		return fmt.Errorf("%w: its tables are not known", errNotHere)
	}
	before, err := sizes(ctx, t.URL, sizer)
	if err != nil {
		return err
	}
	l := load{tasks: s.Tasks, options: contest.Options{Slots: s.Slots}}
	if _, err := l.drain(ctx, t); err != nil {
		return err
	}
	after, err := sizes(ctx, t.URL, sizer)
	if err != nil {
		return err
	}
	const million = 1_000_000
	for i, of := range []string{"table_mib", "index_mib", "history_mib"} {
		perTask := float64(after[i]-before[i]) / float64(s.Tasks)
		t.Record("size", of, "MiB", result.Value(perTask*million/(1<<20)))
	}
	t.Explain("size", "what %d drained tasks take more than none, times %.4g", s.Tasks, million/float64(s.Tasks))
	return nil
}

func sizes(ctx context.Context, url string, s Sizer) (all [3]int64, err error) {
	all[0], all[1], all[2], err = s.Sizes(ctx, url)
	return all, err
}
