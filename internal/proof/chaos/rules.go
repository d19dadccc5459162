package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// stageOf is a stage of a task.
type stageOf struct {
	task  store.ID
	stage string
}

// bout is one time that a process worked on a claim, by its journal.
type bout struct {
	life     int // its index
	start    entry
	from, to time.Time
	how      string // empty where the process did not come to an end of it
}

// trial is the evidence, sorted.
type trial struct {
	*evidence
	bouts   []bout // by time
	byToken map[store.ID][]bout
	byStage map[stageOf][]bout
	rows    map[store.ID]attemptRow // by token
	needs   map[string][]string
	workers map[store.ID]int // lives by what they were registered as
}

func newCase(e *evidence) *trial {
	c := &trial{
		evidence: e, byToken: make(map[store.ID][]bout), byStage: make(map[stageOf][]bout),
		rows: make(map[store.ID]attemptRow), needs: make(map[string][]string), workers: make(map[store.ID]int),
	}
	for _, n := range needs {
		c.needs[n.Name] = n.Needs
	}
	for _, row := range e.history {
		c.rows[row.token] = row
	}
	for i, l := range e.lives {
		c.read(i, l)
	}
	slices.SortStableFunc(c.bouts, func(a, b bout) int { return a.from.Compare(b.from) })
	for _, b := range c.bouts {
		c.byToken[b.start.Token] = append(c.byToken[b.start.Token], b)
		key := stageOf{b.start.Task, b.start.Stage}
		c.byStage[key] = append(c.byStage[key], b)
	}
	return c
}

// read takes the bouts from a journal. What has no end lasted as long as the
// process.
func (c *trial) read(life int, l testimony) {
	ends := make(map[store.ID]entry)
	for _, x := range l.entries {
		switch {
		case x.What == endOfWork:
			ends[x.Token] = x
		case x.How == string(stages.WorkerStarted):
			c.workers[x.Worker] = life
		}
	}
	for _, x := range l.entries {
		if x.What != startOfWork {
			continue
		}
		b := bout{life: life, start: x, from: x.at(), to: l.ended}
		if end, ok := ends[x.Token]; ok {
			b.to, b.how = end.at(), end.How
		}
		c.bouts = append(c.bouts, b)
	}
}

func (b bout) String() string {
	return fmt.Sprintf("attempt %d at %s of %s (token %s)", b.start.Attempt, b.start.Stage, b.start.Source, b.start.Token)
}

// duplicated: a stage completed more than once, a token worked on more than
// once, a task that ran although it was rolled back.
func (c *trial) duplicated() []string {
	var found []string
	completed := make(map[stageOf]int)
	for _, row := range c.history {
		if row.outcome == string(engine.Completed) {
			completed[stageOf{row.task, row.stage}]++
		}
	}
	for key, n := range completed {
		if n > 1 {
			found = append(found, fmt.Sprintf("stage %s of task %s was completed %d times", key.stage, key.task, n))
		}
	}
	for token, bouts := range c.byToken {
		if len(bouts) > 1 {
			found = append(found, fmt.Sprintf("token %s was worked on %d times: %s", token, len(bouts), bouts[0]))
		}
	}
	for _, b := range c.bouts {
		if slices.Contains(c.undone, b.start.Source) {
			found = append(found, fmt.Sprintf("%s: it was rolled back", b))
		}
	}
	slices.Sort(found)
	return found
}

// asyncWithin is how old a claim may be that a crash of the server takes away:
// three times wal_writer_delay, and some more for a busy machine.
const asyncWithin = 2 * time.Second

// vanished: the claim is one that a crash of the server has taken away. Whoever
// was stopped, or far from the server, may begin to work on it after the crash.
func (c *trial) vanished(b bout) bool {
	if _, ok := c.rows[b.start.Token]; ok {
		return false
	}
	for _, f := range c.faults {
		if f.kind != crash && f.kind != immediate {
			continue
		}
		late := time.Duration(0)
		for _, other := range c.faults {
			if other.worker == c.lives[b.life].worker && other.during(f.from.Add(-asyncWithin), b.from) {
				late += max(other.to.Sub(other.from), 0) + asyncWithin
			}
		}
		if !b.from.Before(f.from.Add(-asyncWithin)) && !b.from.After(f.to.Add(late+asyncWithin)) {
			return true
		}
	}
	return false
}

// unexplained: a claim that was worked on ends in the history, unless it has
// vanished with the server.
func (c *trial) unexplained() (found []string) {
	for _, b := range c.bouts {
		if _, ok := c.rows[b.start.Token]; !ok && !c.vanished(b) {
			found = append(found, fmt.Sprintf("%s by worker %d is not in the history", b, c.lives[b.life].worker+1))
		}
	}
	return found
}

// unworked: what the history calls completed or failed was worked on, to the
// same end, by the process it names.
func (c *trial) unworked() (found []string) {
	for _, row := range c.history {
		if row.outcome != string(engine.Completed) && row.outcome != string(engine.Failed) {
			continue
		}
		bouts := c.byToken[row.token]
		life, known := c.workers[row.worker]
		switch {
		case !known:
			found = append(found, fmt.Sprintf("stage %s of task %s %s by worker %s, which no process was", row.stage, row.task, row.outcome, row.worker))
		case len(bouts) == 0:
			found = append(found, fmt.Sprintf("stage %s of task %s %s with token %s, which nobody worked on", row.stage, row.task, row.outcome, row.token))
		case bouts[0].life != life:
			found = append(found, fmt.Sprintf("%s was by another process than the history says", bouts[0]))
		case (bouts[0].how == endedWell) != (row.outcome == string(engine.Completed)) || bouts[0].how == "" || bouts[0].how == endedEarly:
			found = append(found, fmt.Sprintf("%s ended %q, and the history says %s", bouts[0], bouts[0].how, row.outcome))
		}
	}
	return found
}

// clocks may differ by so much between two processes' idea of an instant.
const clocks = 2 * time.Millisecond

// early: no work begins before what it needs is completed, in the history and in
// the journals.
func (c *trial) early() (found []string) {
	completed := make(map[stageOf]attemptRow)
	for _, row := range c.history {
		if row.outcome == string(engine.Completed) {
			completed[stageOf{row.task, row.stage}] = row
		}
	}
	for _, b := range c.bouts {
		for _, need := range c.needs[b.start.Stage] {
			row, ok := completed[stageOf{b.start.Task, need}]
			done := c.byToken[row.token]
			switch {
			case !ok || row.finished.After(b.from.Add(clocks)):
				found = append(found, fmt.Sprintf("%s began before %s was completed", b, need))
			case len(done) == 0 || done[0].how != endedWell || done[0].to.After(b.from.Add(clocks)):
				found = append(found, fmt.Sprintf("%s began before the work on %s had ended", b, need))
			}
		}
	}
	return found
}

// overlaps: no two work on a stage at once, unless the first was stopped
// meanwhile and could not know, or has a claim that the server forgot. A process
// that is merely cut off has ended its work by then; but if its session was
// ended at the other end as well, the others saw what a dead one leaves.
func (c *trial) overlaps() (found []string) {
	for _, bouts := range c.byStage {
		for i, a := range bouts {
			for _, b := range bouts[i+1:] {
				if !b.from.Before(a.to) || c.vanished(a) || c.stopped(a, b.from) || c.disowned(a, b.from) {
					continue
				}
				found = append(found, fmt.Sprintf("%s by worker %d began %v before %s by worker %d had ended",
					b, c.lives[b.life].worker+1, a.to.Sub(b.from), a, c.lives[a.life].worker+1))
			}
		}
	}
	slices.Sort(found)
	return found
}

// stopped: the process was, between the beginning of the bout and then.
func (c *trial) stopped(b bout, then time.Time) bool {
	return slices.ContainsFunc(c.faults, func(f fault) bool {
		return f.kind == freeze && f.worker == c.lives[b.life].worker && f.during(b.from, then)
	})
}

// disowned: while the process was cut off, the server ended its session.
func (c *trial) disowned(b bout, then time.Time) bool {
	silent := []kind{link, hole, deaf, dumb, hold}
	ending := []kind{fast, immediate, crash, listeners, sessions}
	for _, f := range c.faults {
		if !slices.Contains(silent, f.kind) || f.worker != c.lives[b.life].worker || !f.during(b.from, then) {
			continue
		}
		if slices.ContainsFunc(c.faults, func(e fault) bool { return slices.Contains(ending, e.kind) && e.during(f.from, then) }) {
			return true
		}
	}
	return false
}

// deadForNothing: a task dies of a permanent error, or of too many attempts.
func (c *trial) deadForNothing() (found []string) {
	reason := make(map[store.ID]bool)
	for _, row := range c.history {
		if row.outcome == string(engine.Failed) && row.class == endedForGood || row.attempt >= maxAttempts && row.outcome != string(engine.Completed) {
			reason[row.task] = true
		}
	}
	for _, task := range c.tasks {
		if task.dead && !reason[task.id] {
			found = append(found, fmt.Sprintf("task %s is dead without a reason", task.id))
		}
	}
	slices.Sort(found)
	return found
}

// repetitions: a process tells a change once.
func (c *trial) repetitions() (found []string) {
	for _, l := range c.lives {
		for _, pair := range [][]string{
			{string(stages.DatabaseLost), string(stages.DatabaseBack)}, {hearingKind, deafKind},
		} {
			last := pair[1]
			if pair[1] == deafKind {
				last = ""
			}
			for _, x := range l.entries {
				if x.What != eventTold || !slices.Contains(pair, x.How) {
					continue
				}
				if x.How == last {
					found = append(found, strings.TrimSpace(fmt.Sprintf("worker %d said %s twice without a change in between: %s", l.worker+1, last, x.Why)))
				}
				last = x.How
			}
		}
	}
	return found
}
