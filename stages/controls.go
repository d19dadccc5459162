package stages

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
