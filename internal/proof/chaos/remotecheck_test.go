package main

import (
	"slices"
	"testing"
	"time"
)

// killsCoordinator makes the second incarnation that of a remote worker, and kills a coordinator one
// second after the first fault.
func killsCoordinator() *dataBuilder {
	r := correctRun()
	r.logs[1].worker = workers
	r.addFault(killCoordinator, noWorker, time.Second, 8*time.Second)
	return r
}

// worksAt adds an execution of the remote worker, recorded 100 ms later.
func (r *dataBuilder) worksAt(at time.Duration) {
	token := r.executes(1, "ingest", 1, at, 10*ms, endedFailed)
	r.addHistory(token, "ingest", 1, worker2, at+100*ms, "failed")
}

func TestSwitchovers_MeasureFromKillOfCoordinatorToNextOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*dataBuilder)
		want   []recovery
	}{
		"of a worker that goes on": {func(r *dataBuilder) {
			r.worksAt(990 * ms) // its outcome may have been on its way to the killed coordinator
			r.worksAt(3 * time.Second)
			r.worksAt(2 * time.Second)
		}, []recovery{{duration: 1100 * ms, undisturbed: true}}},
		"of a worker that does not": {func(r *dataBuilder) {
			r.worksAt(500 * ms)
		}, []recovery{{duration: 59 * time.Second, undisturbed: true}}},
		"of a worker that was frozen": {func(r *dataBuilder) {
			r.addFault(freezeWorker, workers, 1500*ms, 3*time.Second)
			r.worksAt(4 * time.Second)
		}, []recovery{{duration: 3100 * ms}}},
		"while the server was away": {func(r *dataBuilder) {
			r.addFault(killServer, noWorker, 1500*ms, 3*time.Second)
			r.worksAt(4 * time.Second)
		}, []recovery{{duration: 3100 * ms}}},
		"of a worker that ended at once":      {func(r *dataBuilder) { r.logs[1].ended = after(2 * time.Second) }, nil},
		"of a worker that ended before":       {func(r *dataBuilder) { r.logs[1].ended = after(500 * ms) }, nil},
		"of a worker that was not registered": {func(r *dataBuilder) { r.logs[1].entries[0].At = after(2 * time.Second).UnixMicro() }, nil},
		"of a worker with the database":       {func(r *dataBuilder) { r.logs[1].worker = 1; r.worksAt(3 * time.Second) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := killsCoordinator()
			c.change(r)
			if got := newVerifier(r.runData).switchovers(); !slices.Equal(got, c.want) {
				t.Errorf("%+v; want %+v", got, c.want)
			}
		})
	}
}
