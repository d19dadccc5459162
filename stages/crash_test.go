package stages_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// The server is killed, and stopped in two modes, while tasks run. Afterwards every
// acknowledged task exists and is finished, no stage was completed twice, and a reader
// of events that continues after the last id it read has read every event.
func TestRunner_LosesNothingWhenTheServerCrashes(t *testing.T) {
	t.Parallel()
	work := func(context.Context, *stages.Job) (any, error) {
		if rand.IntN(20) == 0 {
			return nil, errors.New("work failed")
		}
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) // the work's duration
		return nil, nil
	}
	stage := func(name string, needs ...string) stages.Stage {
		return stages.Stage{
			Name: name, Needs: needs, Slots: 8, Work: work, MaxAttempts: 20, Backoff: stages.Backoff{Base: time.Millisecond},
		}
	}
	p, err := stages.New("test", stage("a"), stage("b", "a"), stage("c", "a"), stage("d", "b", "c"))
	if err != nil {
		t.Fatal(err)
	}
	server := pgtest.NewServer(t, pgtest.ServerOptions{Durable: true})
	pool := server.New(pgtest.SQL(p.Graph().SchemaSQL(), p.Graph().TriggersSQL()))
	b := newBundle(t, pool, p)
	runners := []*runner{}
	for range 2 {
		runners = append(runners, b.start(func(r *stages.Runner) { r.Wakes, r.SweepInterval = b.listening(), time.Second }))
	}
	const tasks = 400
	subs := make([]store.Submission, tasks)
	for i := range subs {
		subs[i].Source = fmt.Sprint(i)
	}
	receipts, err := b.SubmitAll(t.Context(), subs)
	if err != nil {
		t.Fatal(err)
	}
	stopFollowing := b.followEvents()
	acknowledged := map[string]bool{}
	waitForCompletions := func(n int) {
		timeout := time.NewTimer(90 * time.Second)
		defer timeout.Stop()
		for n > 0 {
			var e stages.Event
			select {
			case e = <-runners[0].events:
			case e = <-runners[1].events:
			case <-timeout.C:
				t.Fatalf("%d completions are missing after 90 s", n)
			}
			if e.Kind == stages.StageCompleted {
				key := e.Task.String() + e.Stage
				if acknowledged[key] {
					t.Errorf("%s was completed twice", key)
				}
				acknowledged[key] = true
				n--
			}
		}
	}
	waitForCompletions(tasks / 2)
	for _, stop := range []func(){
		server.Kill,
		func() { server.Stop(pgtest.Immediate) },
		func() { server.Stop(pgtest.Fast) },
	} {
		stop()
		server.Start()
		waitForCompletions(tasks / 2)
	}
	waitForCompletions(tasks*4 - 4*tasks/2)
	for _, r := range receipts {
		completed := map[string]int{}
		for _, a := range b.history(r.ID) {
			if a.Outcome == "completed" {
				completed[a.Stage]++
			}
		}
		for _, stage := range []string{"a", "b", "c", "d"} {
			if completed[stage] != 1 {
				t.Errorf("stage %s of %s was completed %d times, by the history", stage, r.ID, completed[stage])
			}
		}
	}
	events := stopFollowing()
	var completions int
	for _, e := range b.events() {
		if !events[e.ID] {
			t.Errorf("the reader missed %+v", e)
		}
		if e.Type == store.TaskCompleted {
			completions++
		}
	}
	if completions != tasks {
		t.Errorf("events of %d completed tasks, want %d", completions, tasks)
	}
}

// followEvents reads events as they are written, each time after the last id, and tries
// again after errors of the database. The returned function waits until all events are
// read, ends the reading, and returns the ids.
func (b bundle) followEvents() (stop func() map[int64]bool) {
	ids := map[int64]bool{}
	var last int64
	stopping, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for stopWhenEmpty := false; ; {
			events, err := b.Events(b.t.Context(), store.EventQuery{After: last, Limit: 100})
			switch {
			case err != nil:
				time.Sleep(10 * time.Millisecond) // a pause before it tries again
				continue
			case len(events) == 0 && stopWhenEmpty:
				return
			case len(events) == 0:
				select {
				case <-stopping:
					stopWhenEmpty = true
				case <-time.After(time.Millisecond):
				}
			}
			for _, e := range events {
				if e.ID <= last {
					b.t.Errorf("event %d came after %d", e.ID, last)
				}
				last, ids[e.ID] = e.ID, true
			}
		}
	}()
	return func() map[int64]bool { close(stopping); <-ended; return ids }
}

// events returns all events.
func (b bundle) events() (all []store.Event) {
	b.t.Helper()
	for {
		var after int64
		if len(all) > 0 {
			after = all[len(all)-1].ID
		}
		next, err := b.Events(b.t.Context(), store.EventQuery{After: after})
		must(b.t, err)
		if len(next) == 0 {
			return all
		}
		all = append(all, next...)
	}
}
