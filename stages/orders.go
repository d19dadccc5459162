package stages

import "errors"

// orders are what people want of this process, as its registration and then each
// beat bring it.
type controls struct {
	paused []bool // by stage: claim nothing there; nil for as before
	drain  bool   // end the work, and stop
}

// errPaused ends a claim that had not started when its stage was paused.
var errPaused = errors.New("stage is paused")

// heed leaves the orders for itself. Only the newest count, as far as they say
// something.
func (d *dispatcher) setControls(o controls) {
	for {
		select {
		case d.newControls <- o:
			return
		case older := <-d.newControls:
			if o.paused == nil {
				o.paused = older.paused
			}
		}
	}
}

// obey takes in the orders. A stage that is paused gives back what has not
// started; what goes on there goes on. One that is paused no longer is looked at.
func (d *dispatcher) applyControls(o controls) {
	for i := range o.paused {
		switch {
		case o.paused[i] && !d.paused[i]:
			d.releaseStagePrefetched(i, errPaused)
			d.Observe(Event{Kind: StagePaused, Worker: d.workerID(), Stage: d.stages[i].Name})
		case d.paused[i] && !o.paused[i]:
			d.queues[i].wake(false)
			d.Observe(Event{Kind: StageResumed, Worker: d.workerID(), Stage: d.stages[i].Name})
		}
	}
	copy(d.paused, o.paused)
	if o.drain && !d.draining {
		d.startDrain()
	}
}

// retire begins a drain that somebody asked for: work may take as long as it
// needs.
func (d *dispatcher) startDrain() {
	d.draining = true
	d.releaseAllPrefetched(ErrDraining)
	d.Observe(Event{Kind: WorkerDraining, Worker: d.workerID(), Count: d.busySlots()})
}
