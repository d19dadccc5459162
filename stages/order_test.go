package stages_test

import (
	"context"
	"testing"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// A process with a long queue goes on from where it was, and must not miss what
// comes in before that.
func TestUrgentTaskIsNextHoweverLongTheQueueIs(t *testing.T) {
	t.Parallel()
	step := make(chan struct{})
	b := setup(t, stages.Stage{Name: "one", Workers: 2, Work: func(context.Context, *stages.Job) (any, error) {
		<-step
		return nil, nil
	}})
	for range 20 {
		b.submit()
	}
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	r.wait(t, stages.Started)
	r.wait(t, stages.Started)
	for range 6 { // it is in the midst of it
		step <- struct{}{}
		r.wait(t, stages.Started)
	}
	urgent, err := b.Submit(t.Context(), store.Submission{Source: "a", Priority: 1})
	if err != nil {
		t.Fatal(err)
	}
	// The news takes a moment: those that are started meanwhile do not count.
	for range 4 {
		step <- struct{}{}
		if r.wait(t, stages.Started).Task == urgent.ID {
			close(step)
			return
		}
	}
	t.Error("others were started first")
	close(step)
}
