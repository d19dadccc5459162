package main

import (
	"math"
	"slices"
	"time"
)

// rescue is what became of one claim whose worker was killed.
type rescue struct {
	took   time.Duration // from the kill to the next attempt
	own    bool          // by the process that took the place of the killed one
	calm   bool          // nothing that excuses a delay was the matter
	silent bool          // the database could not see the worker's end
}

// shaken is how long the server must have been back for things to be calm.
const shaken = 10 * time.Second

// rescues are those of all claims that killed workers held. Those whose last
// allowed attempt it was are buried instead.
func (c *trial) rescues() (all []rescue, buried int) {
	for i, l := range c.lives {
		if l.killed.IsZero() {
			continue
		}
		for _, claim := range c.heldAtDeath(i) {
			next, ok := c.nextBout(claim, l.killed)
			if !ok {
				buried++
				continue
			}
			all = append(all, rescue{
				took: next.from.Sub(l.killed), own: c.lives[next.life].worker == l.worker,
				calm: c.wasCalm(claim, l.killed, next.from), silent: c.wasSilent(l),
			})
		}
	}
	return all, buried
}

// heldAtDeath are the claims that expired with the process, or vanished.
func (c *trial) heldAtDeath(life int) []stageOf {
	var held []stageOf
	for _, row := range c.history {
		of, known := c.workers[row.worker]
		if known && of == life && row.outcome == "expired" && row.finished.After(c.lives[life].killed) {
			held = append(held, stageOf{row.task, row.stage})
		}
	}
	for _, b := range c.bouts {
		if _, ok := c.rows[b.start.Token]; !ok && b.life == life && b.how == "" {
			held = append(held, stageOf{b.start.Task, b.start.Stage})
		}
	}
	return held
}

func (c *trial) nextBout(claim stageOf, after time.Time) (bout, bool) {
	for _, b := range c.byStage[claim] {
		if b.from.After(after) {
			return b, true
		}
	}
	return bout{}, false
}

func (c *trial) wasCalm(claim stageOf, from, to time.Time) bool {
	return !slices.ContainsFunc(c.faults, func(f fault) bool {
		switch {
		case slices.Contains(serverKinds[:], f.kind):
			return f.during(from.Add(-shaken), to)
		case f.kind == rows:
			return slices.Contains(f.tasks, claim.task) && f.during(from, to)
		}
		return false
	})
}

// wasSilent: a black hole kept the end of the process from the server.
func (c *trial) wasSilent(l testimony) bool {
	return slices.ContainsFunc(c.faults, func(f fault) bool {
		return f.worker == l.worker && f.during(l.killed, l.killed) && slices.Contains([]kind{power, link, hole, dumb, hold}, f.kind)
	})
}

// percentiles are the median and the 99th, in milliseconds, of those rescues
// that are chosen; nil where there are none.
func percentiles(all []rescue, choose func(rescue) bool) (p50, p99 *int64) {
	var took []int64
	for _, r := range all {
		if choose(r) {
			took = append(took, r.took.Milliseconds())
		}
	}
	if len(took) == 0 {
		return nil, nil
	}
	slices.Sort(took)
	rank := func(p float64) *int64 {
		return &took[int(math.Ceil(p*float64(len(took))))-1]
	}
	return rank(0.5), rank(0.99)
}
