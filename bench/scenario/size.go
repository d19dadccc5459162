package scenario

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// Sizer is a contestant that tells how many bytes its tasks take.
type Sizer interface {
	Sizes(ctx context.Context, url string) (harness.Sizes, error)
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

// Measure measures all four.
func (s Size) Measure(ctx context.Context, t *Trial) error {
	sizer, ok := t.System.(Sizer)
	if !ok {
		return fmt.Errorf("%w: its tables are not known", errNotHere)
	}
	before, err := sizer.Sizes(ctx, t.URL)
	if err != nil {
		return err
	}
	l := load{tasks: s.Tasks, options: harness.Options{Slots: s.Slots}}
	if _, err := l.drain(ctx, t); err != nil {
		return err
	}
	after, err := sizer.Sizes(ctx, t.URL)
	if err != nil {
		return err
	}
	const million = 1_000_000
	for _, grown := range []struct {
		of            string
		before, after int64
	}{
		{"table_mib", before.Tasks, after.Tasks},
		{"index_mib", before.Indexes, after.Indexes},
		{"history_mib", before.History, after.History},
		{"outbox_mib", before.Outbox, after.Outbox},
	} {
		perTask := float64(grown.after-grown.before) / float64(s.Tasks)
		t.Record("size", grown.of, "MiB", result.FromValue(perTask*million/(1<<20)))
	}
	t.Note("size", "what %d drained tasks take more than none, times %.4g", s.Tasks, million/float64(s.Tasks))
	return nil
}
