package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/contest"
)

// stuckAfter is how long a benchmark waits without seeing any progress before
// it says that there is none.
const stuckAfter = 30 * time.Second

// stories keep everything that happens to each of some tasks, for latencies.
type stories struct {
	all []story
	bad error
	mu  sync.Mutex
}

// story is what happened to one task.
type story struct {
	mu   sync.Mutex
	at   [contest.Stages][contest.Completed + 1]time.Time
	seen int
	done chan struct{} // closed when everything has happened
}

func newStories(n int) *stories {
	s := &stories{all: make([]story, n)}
	for i := range s.all {
		s.all[i].done = make(chan struct{})
	}
	return s
}

// observe is for contest.Options. What comes from several processes need not
// come in order, so a story is over when nothing of it is missing.
func (s *stories) observe(m contest.Moment) {
	if m.Task < 0 || m.Task >= int64(len(s.all)) {
		s.wrong(fmt.Errorf("%v of a task %d, which nobody submitted", m.Stage, m.Task))
		return
	}
	t := &s.all[m.Task]
	t.mu.Lock()
	at := &t.at[m.Stage][m.What]
	twice := !at.IsZero()
	*at = m.At
	if !twice {
		t.seen++
		if t.seen == contest.Stages*int(contest.Completed+1) {
			close(t.done)
		}
	}
	t.mu.Unlock()
	if twice {
		s.wrong(fmt.Errorf("%v of task %d %s twice", m.Stage, m.Task, verb(m.What)))
	}
}

func verb(w contest.What) string {
	return [...]string{"began", "ended", "was completed"}[w]
}

func (s *stories) wrong(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad == nil {
		s.bad = err
	}
}

func (s *stories) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad
}

// wait returns when everything has happened to a task, or the error that it
// has not, for that long.
func (s *stories) wait(ctx context.Context, task int64, most time.Duration) error {
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-s.all[task].done:
		return s.err()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return fmt.Errorf("task %d is stuck: %s", task, s.all[task].state())
	}
}

// state says what is missing.
func (t *story) state() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for stage := contest.Ingest; stage < contest.Stage(contest.Stages); stage++ {
		for what := contest.Began; what <= contest.Completed; what++ {
			if t.at[stage][what].IsZero() {
				return fmt.Sprintf("nobody has seen that %v %s", stage, verb(what))
			}
		}
	}
	return "everything has happened"
}

// when is the time at which something happened, in a story that is over.
func (t *story) when(s contest.Stage, w contest.What) time.Time { return t.at[s][w] }

// hops are the times from when the last of a stage's needs had come so far until
// the stage began, of each stage that has needs.
func (t *story) hops(from contest.What) []time.Duration {
	var hops []time.Duration
	for s := contest.Ingest; s < contest.Stage(contest.Stages); s++ {
		var ready time.Time
		for _, need := range s.Needs() {
			if at := t.when(need, from); ready.IsZero() || at.After(ready) {
				ready = at
			}
		}
		if !ready.IsZero() {
			hops = append(hops, t.when(s, contest.Began).Sub(ready))
		}
	}
	return hops
}
