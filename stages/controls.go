package stages

// applyControls releases prefetched claims of paused stages, and asks again for tasks of
// resumed ones. Running attempts go on.
func (d *dispatcher) applyControls(c controls) {
	for i := range d.queues {
		q := &d.queues[i]
		if c.paused == nil || c.paused[q.number] == q.paused {
			continue
		}
		q.paused = !q.paused
		kind := StageResumed
		if q.paused {
			kind = StagePaused
			d.releasePrefetched(q, errPaused)
			d.collecting = true
		} else {
			q.wake(false, nil)
		}
		if !q.parts { // once per stage
			d.p.observe(Event{Kind: kind, Stage: q.stage.Name})
		}
	}
	if c.drain && !d.draining {
		d.startDrain()
	}
}

// startDrain stops claiming. Attempts may take as long as they need, unless the
// shutdown cancels them.
func (d *dispatcher) startDrain() {
	d.draining, d.collecting = true, true
	for i := range d.queues {
		d.releasePrefetched(&d.queues[i], ErrDraining)
	}
	d.p.observe(Event{Kind: WorkerDraining, Count: d.busySlots()})
}
