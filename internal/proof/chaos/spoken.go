package main

import (
	"fmt"
	"slices"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store/engine"
)

// attemptOf is how a process names a claim in what it tells. It is not a token:
// what was released, or has vanished, may come again with the same number.
type attemptOf struct {
	stageOf
	attempt int
}

// heard is what one process did, and said, about the claims of one name.
type heard struct {
	began, completed int            // by the journal of the work, and by the history
	said             map[string]int // by kind of event
}

// misspoken: what a process tells of each claim is what became of it, and it
// tells it once.
func (c *trial) misspoken() (found []string) {
	for i, l := range c.lives {
		for key, h := range c.hear(i) {
			final := 0
			for _, kind := range []stages.Kind{stages.StageCompleted, stages.AttemptFailed, stages.StageDead, stages.ClaimRevoked} {
				final += h.said[string(kind)]
			}
			// A claim it never heard of is given back unseen.
			most := final + h.said[string(stages.ClaimReleased)]
			name := fmt.Sprintf("worker %d: attempt %d at %s of task %s", l.worker+1, key.attempt, key.stage, key.task)
			switch {
			case h.said[string(stages.StageCompleted)] > h.completed,
				l.killed.IsZero() && h.said[string(stages.StageCompleted)] < h.completed:
				found = append(found, fmt.Sprintf("%s is completed %d times, and was told to be %d times", name, h.completed, h.said[string(stages.StageCompleted)]))
			case final > h.began, l.killed.IsZero() && most < h.began:
				found = append(found, fmt.Sprintf("%s was begun %d times, and its end told %d times", name, h.began, most))
			}
		}
	}
	slices.Sort(found)
	return found
}

func (c *trial) hear(life int) map[attemptOf]*heard {
	all := make(map[attemptOf]*heard)
	of := func(x entry) *heard {
		key := attemptOf{stageOf{x.Task, x.Stage}, x.Attempt}
		if all[key] == nil {
			all[key] = &heard{said: make(map[string]int)}
		}
		return all[key]
	}
	for _, x := range c.lives[life].entries {
		switch {
		case x.What == startOfWork:
			h := of(x)
			h.began++
			if c.rows[x.Token].outcome == string(engine.Completed) {
				h.completed++
			}
		case x.What == eventTold && !x.Task.IsZero():
			of(x).said[x.How]++
		}
	}
	return all
}
