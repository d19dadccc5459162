package stages_test

import (
	"context"
	"testing"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// A process with a long queue goes on from where it was, and must not miss what
// comes in, or becomes urgent, before that.
func TestUrgentTaskIsNextHoweverLongTheQueueIs(t *testing.T) {
	t.Parallel()
	submit := func(b bundle, _ store.ID) store.ID {
		urgent, err := b.Submit(t.Context(), store.Submission{Source: "a", Priority: 1})
		if err != nil {
			t.Fatal(err)
		}
		return urgent.ID
	}
	raise := func(b bundle, last store.ID) store.ID {
		if _, err := b.pool.Exec(t.Context(), "update test_tasks set priority = 1 where id = $1", last); err != nil {
			t.Fatal(err)
		}
		return last
	}
	for name, c := range map[string]struct {
		listens bool
		happens func(b bundle, last store.ID) (urgent store.ID)
	}{
		"submitted":               {true, submit},
		"submitted, with no news": {false, submit},
		"raised by hand":          {true, raise},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			step := make(chan struct{})
			b := setup(t, stages.Stage{Name: "one", Workers: 2, Work: func(context.Context, *stages.Job) (any, error) {
				<-step
				return nil, nil
			}})
			defer close(step)
			var last store.ID
			for range 20 {
				last = b.submit()
			}
			ear := attentive{took: make(chan struct{}, 1)}
			r := b.start(func(r *stages.Runner) {
				if c.listens {
					ear.Listener = b.listening()
					r.Wakes = ear
				}
			})
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
			urgent := c.happens(b, last)
			if c.listens {
				<-ear.took
			}
			for range 3 { // as work this quick has two more claimed ahead, at most
				step <- struct{}{}
				if r.wait(t, stages.Started).Task == urgent {
					return
				}
			}
			t.Error("others were started first")
		})
	}
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
