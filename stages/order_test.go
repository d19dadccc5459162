package stages_test

import (
	"context"
	"testing"

	"github.com/cuelight/cuelight/notify"
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
	ear := attentive{b.listening(), make(chan struct{}, 1)}
	r := b.start(func(r *stages.Runner) { r.Wakes = ear })
	r.wait(t, stages.Started)
	r.wait(t, stages.Started)
	for range 6 { // it is in the midst of it
		step <- struct{}{}
		r.wait(t, stages.Started)
	}
	select {
	case <-ear.took: // what it heard at the beginning
	default:
	}
	urgent, err := b.Submit(t.Context(), store.Submission{Source: "a", Priority: 1})
	if err != nil {
		t.Fatal(err)
	}
	<-ear.took
	defer close(step)
	for range 3 { // as work this quick has two more claimed ahead, at most
		step <- struct{}{}
		if r.wait(t, stages.Started).Task == urgent.ID {
			return
		}
	}
	t.Error("others were started first")
}

// attentive says when the news was taken in.
type attentive struct {
	*notify.Listener
	took chan struct{}
}

func (a attentive) Take() []string {
	news := a.Listener.Take()
	select {
	case a.took <- struct{}{}:
	default:
	}
	return news
}
