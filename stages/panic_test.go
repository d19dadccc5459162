package stages_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// brokenError is an error and a result. A nil pointer panics in Error; another one in the methods that are set.
type brokenError struct{ is, as, unwrap func() }

func (e *brokenError) Error() string {
	_ = e.is // a nil pointer panics here
	return "broken"
}

func (e *brokenError) Is(error) bool { call(e.is); return false }

func (e *brokenError) As(any) bool { call(e.as); return false }

func (e *brokenError) Unwrap() error { call(e.unwrap); return nil }

func call(f func()) {
	if f != nil {
		f()
	}
}

type brokenJSON struct{}

func (brokenJSON) MarshalJSON() ([]byte, error) { panic("broken") }

func TestPanic_OfAResultOrAnErrorFailsTheAttempt(t *testing.T) {
	t.Parallel()
	broken := func() { panic("broken") }
	var typedNil *brokenError
	var list []stages.Stage
	add := func(name string, s stages.Stage) {
		s.Name, s.MaxAttempts = name, 1
		list = append(list, s)
	}
	for name, err := range map[string]error{
		"typed_nil": typedNil, "in_is": &brokenError{is: broken}, "in_as": &brokenError{as: broken}, "in_unwrap": &brokenError{unwrap: broken},
		"postponed": stages.Postpone(time.Second, typedNil),
	} {
		add(name, stages.Stage{Work: func(context.Context, *stages.Job) (any, error) { return nil, err }})
	}
	add("result", stages.Stage{Work: func(context.Context, *stages.Job) (any, error) { return brokenJSON{}, nil }})
	add("spec", stages.Stage{Divide: dividing([]stages.Part{{Spec: brokenJSON{}}}), Part: noop, Work: noop})
	add("divide_again", stages.Stage{
		Divide: dividing(specified("a", 1)), Part: noop,
		Work: func(context.Context, *stages.Job) (any, error) {
			return nil, stages.DivideAgain(specified("b", 1), typedNil)
		},
	})
	b := setup(t, list...)
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	for range list {
		r.wait(t, stages.StageDead)
	}
	for _, a := range b.history(id) {
		if a.Outcome != "failed" {
			continue
		}
		if a.Class != "panic" || !strings.Contains(a.Error, "panic_test.go") {
			t.Errorf("%s has class %q and error %q", a.Stage, a.Class, a.Error)
		}
	}
}

func TestPanic_OfARetentionIsAnErrorAboutItsTask(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "only", Work: noop})
	must(t, b.Delete(t.Context(), b.submit(), store.DeleteOptions{KeepPublished: true, Purge: true}))
	must(t, b.Delete(t.Context(), b.submit(), store.DeleteOptions{}))
	broken := func(context.Context, store.DeletedTask) error { panic("the disk is broken") }
	r := b.start(func(r *stages.Runner) { r.Retention = &stages.Retention{Unpublish: broken, RemoveFiles: broken} })
	for range 2 {
		if e := r.wait(t, stages.RemovalFailed); !strings.Contains(e.Err.Error(), "the disk is broken") {
			t.Errorf("the removal failed because of %v", e.Err)
		}
	}
}

// A panic of a callback must not count as an attempt of the tasks of its process.
func TestPanic_OfACallbackDrainsTheRunner(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*stages.Runner){
		"Observe": func(r *stages.Runner) {
			observe := r.Observe
			r.Observe = func(e stages.Event) {
				observe(e)
				if e.Kind == stages.StageStarted {
					panic("the callback is broken")
				}
			}
		},
		"OnAlive": func(r *stages.Runner) { r.OnAlive = func(string) { panic("the callback is broken") } },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q, p := newFakeQueue(1), pipeline(t, workTaking(10*time.Second), "one")
				r := stages.Runner{
					Backend: &fakeBackend{graph: p.Graph(), exchange: q.exchange, sweep: q.sweep}, Pipeline: p, Observe: func(stages.Event) {},
				}
				change(&r)
				err := r.Run(t.Context())
				if err == nil || !strings.Contains(err.Error(), name+": panic: the callback is broken") {
					t.Errorf("the Runner ended with %v", err)
				}
				if most, _ := q.attempts(); name == "Observe" && !q.isDone(0) || most > 1 {
					t.Errorf("the task had %d attempts, and is completed: %t", most, q.isDone(0))
				}
			})
		})
	}
}

func TestHugeError_IsShortenedBeforeItIsRedacted(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", MaxAttempts: 1, Work: func(context.Context, *stages.Job) (any, error) {
		return nil, errors.New(strings.Repeat("https://user:hunter22@host/a?b ", 1<<20))
	}})
	id := b.submit()
	r := b.start(nil)
	if e := r.wait(t, stages.StageDead); len(e.Err.Error()) > 128<<10 {
		t.Errorf("the event's error has %d bytes", len(e.Err.Error()))
	}
	h := b.history(id)[0]
	// The whole error would take 256 times as long as what is kept of it, which takes a second with the race detector.
	if strings.Contains(h.Error, "hunter") || !strings.HasSuffix(h.Error, " …") || h.FinishedAt.Sub(h.StartedAt) > 20*time.Second {
		t.Errorf("an attempt from %s to %s has an error of %d bytes", h.StartedAt, h.FinishedAt, len(h.Error))
	}
}
