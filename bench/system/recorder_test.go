package system_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/bench/system"
)

const taskCount = 3

// correctObservations returns the observations of a correct run, one every millisecond.
func correctObservations() []system.Observation {
	var all []system.Observation
	at := time.Now()
	for task := range int64(taskCount) {
		for _, s := range system.Stages {
			for kind := system.Started; kind <= system.Completed; kind++ {
				at = at.Add(time.Millisecond)
				all = append(all, system.Observation{Task: task, Stage: s, Kind: kind, At: at})
			}
		}
	}
	return all
}

func TestRecorder_RequiresEveryObservationOnce(t *testing.T) {
	t.Parallel()
	const publish = 3 * int(system.Publish) // its first observation, of task 0
	correct := correctObservations()
	for name, c := range map[string]struct {
		observations []system.Observation
		want         string
	}{
		"once":         {correct, ""},
		"twice":        {append(correct[:len(correct):len(correct)], correct[publish]), "publish of task 0 started twice"},
		"never":        {slices.Concat(correct[:publish+2], correct[publish+3:]), "not observed: publish of task 0 was completed"},
		"unknown task": {append(correct[:len(correct):len(correct)], system.Observation{Task: taskCount}), "ingest of unknown task 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := system.NewRecorder(taskCount)
			for _, o := range c.observations {
				r.Observe(o)
			}
			if err := r.Check(); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestRecorder_WaitsForTheLastObservation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := system.NewRecorder(taskCount)
		one, all := make(chan error, 1), make(chan error, 1)
		go func() { one <- r.Wait(t.Context(), 0) }()
		go func() { all <- r.WaitAll(t.Context(), time.Minute) }()
		observations := correctObservations()
		perTask := len(observations) / taskCount
		for i, o := range observations {
			synctest.Wait()
			if len(one) > 0 != (i >= perTask) || len(all) > 0 {
				t.Fatalf("after %d observations, waiting for task 0 and for all ended: %d, %d", i, len(one), len(all))
			}
			r.Observe(o)
		}
		if err := errors.Join(<-one, <-all, r.Wait(t.Context(), 1)); err != nil {
			t.Error(err)
		}
	})
}

func TestRecorder_StopsWaitingWhenNothingProceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := system.NewRecorder(taskCount)
		r.Observe(correctObservations()[0])
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := r.Wait(ctx, 0)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not observed: ingest of task 0 ended") {
			t.Errorf("error for one task is %v", err)
		}
		err = r.WaitAll(t.Context(), time.Minute)
		if err == nil || !strings.Contains(err.Error(), "44 of 45 observations are missing") {
			t.Errorf("error for all tasks is %v", err)
		}
	})
}

func TestRecorder_CountsHopsFromTheLastDependency(t *testing.T) {
	t.Parallel()
	r := system.NewRecorder(1)
	base := time.Now()
	for stage, times := range map[system.Stage][3]int{
		system.Ingest:    {0, 10, 11},
		system.Transcode: {15, 30, 31},
		system.Metadata:  {16, 20, 29},
		system.Assemble:  {32, 40, 41},
		system.Publish:   {47, 50, 51},
	} {
		for kind, ms := range times {
			at := base.Add(time.Duration(ms) * time.Millisecond)
			r.Observe(system.Observation{Stage: stage, Kind: system.Kind(kind), At: at})
		}
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[system.Kind][]time.Duration{
		system.Ended:     {5 * time.Millisecond, 6 * time.Millisecond, 2 * time.Millisecond, 7 * time.Millisecond},
		system.Completed: {4 * time.Millisecond, 5 * time.Millisecond, 1 * time.Millisecond, 6 * time.Millisecond},
	} {
		if got := r.Hops(0, from); !slices.Equal(got, want) {
			t.Errorf("hops from %v are %v, want %v", from, got, want)
		}
	}
	if got, want := r.Duration(), 51*time.Millisecond; got != want {
		t.Errorf("duration is %v, want %v", got, want)
	}
}
