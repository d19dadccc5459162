package stages

import "errors"

// controls are what operators want of this process: read when it registers, and with
// every heartbeat.
type controls struct {
	paused []bool // by stage: claim nothing; nil: as before
	drain  bool   // finish the work and stop
}

// errPaused ends a prefetched claim of a stage that was paused.
var errPaused = errors.New("stage is paused")

// setControls leaves the controls for the dispatcher, in place of older ones.
func (s signals) setControls(c controls) {
	for {
		select {
		case s.controls <- c:
			return
		case older := <-s.controls:
			if c.paused == nil {
				c.paused = older.paused
			}
		}
	}
}

// applyControls releases prefetched claims of paused stages, and asks again for tasks of
// resumed ones. Running attempts go on.
func (d *dispatcher) applyControls(c controls) {
	for i := range c.paused {
		q := &d.queues[i]
		switch {
		case c.paused[i] && !q.paused:
			d.releasePrefetched(q, errPaused)
			d.p.observe(Event{Kind: StagePaused, Stage: q.stage.Name})
		case q.paused && !c.paused[i]:
			q.wake(false)
			d.p.observe(Event{Kind: StageResumed, Stage: q.stage.Name})
		}
		q.paused = c.paused[i]
	}
	if c.drain && !d.draining {
		d.startDrain()
	}
}

// startDrain stops claiming. Attempts may take as long as they need, unless the
// shutdown cancels them.
func (d *dispatcher) startDrain() {
	d.draining = true
	for i := range d.queues {
		d.releasePrefetched(&d.queues[i], ErrDraining)
	}
	d.p.observe(Event{Kind: WorkerDraining, Count: d.busySlots()})
}
