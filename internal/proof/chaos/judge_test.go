package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// record makes evidence of one task that worker 1 has completed in good order,
// each stage in 10 ms, beginning one second after the torments began.
type record struct {
	*evidence
	tokens byte
}

var (
	theTask   = store.ID{1}
	theWorker = store.ID{2} // as which the first life was registered
	heir      = store.ID{3} // and the second
	calmUntil = time.UnixMicro(1e12)
)

func goodRecord() *record {
	r := &record{evidence: &evidence{
		calm:         calmUntil,
		acknowledged: map[string]store.ID{"task-1": theTask},
		undone:       []string{"undone-1"},
		tasks:        map[store.ID]taskRow{theTask: {id: theTask, request: "task-1", completed: true}},
		lives: []testimony{
			{worker: 0, began: after(0), ended: after(time.Minute), entries: []entry{registered(theWorker)}},
			{worker: 1, began: after(0), ended: after(time.Minute), entries: []entry{registered(heir)}},
		},
	}}
	for i, n := range needs {
		at := time.Second + time.Duration(i)*20*ms
		token := r.works(0, n.Name, 1, at, 10*ms, endedWell)
		r.writes(token, n.Name, 1, theWorker, at+11*ms, "completed")
		r.says(0, stages.StageCompleted, n.Name, 1, at+12*ms)
	}
	return r
}

func after(d time.Duration) time.Time { return calmUntil.Add(d) }

func registered(as store.ID) entry {
	return entry{At: after(0).UnixMicro(), What: eventTold, How: string(stages.WorkerStarted), Worker: as}
}

// works puts a bout into a journal; without a how it has no end.
func (r *record) works(life int, stage string, attempt int, at, takes time.Duration, how string) store.ID {
	r.tokens++
	token := store.ID{9, r.tokens}
	e := &r.lives[life].entries
	*e = append(*e, entry{
		At: after(at).UnixMicro(), What: startOfWork, Task: theTask, Source: "task-1", Stage: stage, Attempt: attempt, Token: token,
	})
	if how != "" {
		*e = append(*e, entry{At: after(at + takes).UnixMicro(), What: endOfWork, Task: theTask, Stage: stage, Token: token, How: how})
	}
	return token
}

func (r *record) writes(token store.ID, stage string, attempt int, by store.ID, at time.Duration, outcome string) {
	r.history = append(r.history, attemptRow{
		task: theTask, token: token, stage: stage, attempt: attempt, worker: by, finished: after(at), outcome: outcome,
	})
}

func (r *record) says(life int, kind stages.Kind, stage string, attempt int, at time.Duration) {
	e := &r.lives[life].entries
	*e = append(*e, entry{At: after(at).UnixMicro(), What: eventTold, How: string(kind), Task: theTask, Stage: stage, Attempt: attempt})
}

// breaks notes a fault.
func (r *record) breaks(k kind, worker int, from, to time.Duration) {
	r.faults = append(r.faults, fault{kind: k, worker: worker, from: after(from), to: after(to)})
}

func (r *record) judged() *findings {
	v := new(findings)
	r.judge(v)
	return v
}

func TestNothingIsFoundWhereNothingIsWrong(t *testing.T) {
	t.Parallel()
	v := goodRecord().judged()
	if len(v.lost)+len(v.duplicated)+len(v.violations)+len(v.rescues) != 0 || v.Completed != 1 || v.Dead != 0 {
		t.Errorf("%+v", v)
	}
}

func TestWhatIsWrongIsFound(t *testing.T) {
	t.Parallel()
	const lost, duplicated, violation = "lost", "duplicated", "violation"
	for name, c := range map[string]struct {
		spoil func(*record)
		kind  string
		words string
	}{
		"a task that is not there": {func(r *record) { delete(r.tasks, theTask) }, lost, "is not there"},
		"another task under its id": {func(r *record) {
			r.tasks[theTask] = taskRow{id: theTask, request: "task-2", completed: true}
		}, lost, "is that of task-2"},
		"a task that has not ended": {func(r *record) {
			r.tasks[theTask] = taskRow{id: theTask, request: "task-1", open: true}
		}, lost, "has not ended"},
		"a stage completed twice": {func(r *record) {
			token := r.works(1, "publish", 2, 2*time.Second, 10*ms, endedWell)
			r.writes(token, "publish", 2, heir, 2*time.Second+11*ms, "completed")
			r.says(1, stages.StageCompleted, "publish", 2, 2*time.Second+12*ms)
		}, duplicated, "was completed 2 times"},
		"a token worked on twice": {func(r *record) {
			token := r.works(1, "ingest", 1, 2*time.Second, 10*ms, endedWell)
			r.lives[1].entries[len(r.lives[1].entries)-2].Token = r.history[0].token
			r.lives[1].entries[len(r.lives[1].entries)-1].Token = r.history[0].token
			_ = token
		}, duplicated, "was worked on 2 times"},
		"a task that was rolled back": {func(r *record) { r.lives[0].entries[1].Source = "undone-1" }, duplicated, "was rolled back"},
		"a claim that is not in the history": {func(r *record) {
			r.works(1, "ingest", 1, 900*ms, 10*ms, endedBadly)
		}, violation, "is not in the history"},
		"a claim that vanished long before the crash": {func(r *record) {
			r.works(1, "ingest", 1, 900*ms, 10*ms, endedBadly)
			r.breaks(crash, -1, 10*time.Second, 12*time.Second)
		}, violation, "is not in the history"},
		"a completion nobody worked for": {func(r *record) {
			r.lives[0].entries = r.lives[0].entries[:1]
		}, violation, "which nobody worked on"},
		"a completion by another than it says": {func(r *record) { r.history[0].worker = heir }, violation, "by another process"},
		"a completion by nobody":               {func(r *record) { r.history[0].worker = store.ID{77} }, violation, "which no process was"},
		"a completion of work that failed":     {func(r *record) { r.lives[0].entries[2].How = endedBadly }, violation, `ended "failed"`},
		"a stage that began too early": {func(r *record) {
			for i := range r.history {
				if r.history[i].stage == "metadata" {
					r.history[i].finished = after(5 * time.Second)
				}
			}
		}, violation, "began before metadata was completed"},
		"a stage that began before work on another ended": {func(r *record) {
			r.lives[0].entries[2].At = after(5 * time.Second).UnixMicro()
		}, violation, "began before the work on ingest had ended"},
		"two at once": {func(r *record) {
			token := r.works(1, "ingest", 1, 500*ms, time.Second, endedBadly)
			r.writes(token, "ingest", 1, heir, 600*ms, "expired")
			r.says(1, stages.ClaimRevoked, "ingest", 1, 1600*ms)
		}, violation, "by worker 2 had ended"},
		"two at once behind a black hole": {func(r *record) {
			token := r.works(1, "ingest", 1, 500*ms, time.Second, endedBadly)
			r.writes(token, "ingest", 1, heir, 600*ms, "expired")
			r.says(1, stages.ClaimRevoked, "ingest", 1, 1600*ms)
			r.breaks(hole, 1, 400*ms, 2*time.Second)
		}, violation, "by worker 2 had ended"},
		"an end told twice": {func(r *record) { r.says(0, stages.ClaimRevoked, "ingest", 1, 3*time.Second) }, violation, "its end told 2 times"},
		"an end not told": {func(r *record) {
			token := r.works(1, "ingest", 1, 500*ms, 10*ms, endedBadly)
			r.writes(token, "ingest", 1, heir, 600*ms, "failed")
		}, violation, "its end told 0 times"},
		"a completion told that was none": {func(r *record) {
			token := r.works(1, "ingest", 1, 500*ms, 10*ms, endedEarly)
			r.writes(token, "ingest", 1, heir, 600*ms, "expired")
			r.says(1, stages.StageCompleted, "ingest", 1, 700*ms)
		}, violation, "is completed 0 times, and was told to be 1 times"},
		"a task dead for nothing": {func(r *record) {
			r.tasks[theTask] = taskRow{id: theTask, request: "task-1", dead: true}
		}, violation, "dead without a reason"},
		"a change told twice": {func(r *record) {
			for range 2 {
				r.lives[0].entries = append(r.lives[0].entries, entry{What: eventTold, How: string(stages.DatabaseLost)})
			}
		}, violation, "said database_lost twice"},
		"a missed wake in health": {func(r *record) {
			r.lives[0].entries = append(r.lives[0].entries,
				entry{At: after(-time.Second).UnixMicro(), What: eventTold, How: string(stages.WakeMissed), Stage: "ingest", Count: 3})
		}, violation, "was not woken for 3 claims"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := goodRecord()
			c.spoil(r)
			v := r.judged()
			found := map[string][]string{lost: v.lost, duplicated: v.duplicated, violation: v.violations}
			if !slices.ContainsFunc(found[c.kind], func(s string) bool { return strings.Contains(s, c.words) }) {
				t.Errorf("%q is not found: %v", c.words, found)
			}
		})
	}
}

func TestWhatOurFaultsExplainIsNotFound(t *testing.T) {
	t.Parallel()
	for name, excuse := range map[string]func(*record){
		"a claim that vanished with the server": func(r *record) {
			r.works(1, "ingest", 1, 900*ms, 10*ms, endedEarly)
			r.says(1, stages.ClaimRevoked, "ingest", 1, 950*ms)
			r.breaks(crash, -1, 905*ms, 910*ms)
		},
		"one that a frozen worker began long after": func(r *record) {
			r.works(1, "ingest", 1, 900*ms, 10*ms, endedEarly)
			r.says(1, stages.ClaimRevoked, "ingest", 1, 950*ms)
			r.breaks(immediate, -1, -50*time.Second, -49*time.Second)
			r.breaks(freeze, 1, -50*time.Second, 850*ms)
		},
		"work that went on while its worker was frozen": func(r *record) {
			token := r.works(1, "ingest", 1, 500*ms, 40*time.Second, endedWell)
			r.writes(token, "ingest", 1, heir, 600*ms, "expired")
			r.says(1, stages.ClaimRevoked, "ingest", 1, 41*time.Second)
			r.breaks(freeze, 1, 550*ms, 40*time.Second)
		},
		"work behind a black hole whose session was ended": func(r *record) {
			token := r.works(1, "ingest", 1, 500*ms, time.Second, endedBadly)
			r.writes(token, "ingest", 1, heir, 600*ms, "expired")
			r.says(1, stages.ClaimRevoked, "ingest", 1, 1600*ms)
			r.breaks(hole, 1, 400*ms, 2*time.Second)
			r.breaks(listeners, -1, 520*ms, 521*ms)
		},
		"a missed wake later": func(r *record) {
			r.lives[0].entries = append(r.lives[0].entries,
				entry{At: after(time.Second).UnixMicro(), What: eventTold, How: string(stages.WakeMissed), Stage: "ingest", Count: 3})
		},
		"a claim given back unseen": func(r *record) { r.says(1, stages.ClaimReleased, "ingest", 1, 500*ms) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := goodRecord()
			excuse(r)
			if v := r.judged(); len(v.lost)+len(v.duplicated)+len(v.violations) != 0 {
				t.Errorf("%v %v %v", v.lost, v.duplicated, v.violations)
			}
		})
	}
}

func TestARescueIsTimedFromTheKillToTheNextAttempt(t *testing.T) {
	t.Parallel()
	const died = 500 * ms
	for name, c := range map[string]struct {
		also func(*record)
		want rescue
	}{
		"by another":          {func(*record) {}, rescue{took: 500 * ms, calm: true}},
		"the server was away": {func(r *record) { r.breaks(fast, -1, -9*time.Second, -8*time.Second) }, rescue{took: 500 * ms}},
		"it was long back":    {func(r *record) { r.breaks(fast, -1, -20*time.Second, -15*time.Second) }, rescue{took: 500 * ms, calm: true}},
		"the task was locked": {func(r *record) {
			r.breaks(rows, -1, 600*ms, 700*ms)
			r.faults[0].tasks = []store.ID{theTask}
		}, rescue{took: 500 * ms}},
		"another was": {func(r *record) {
			r.breaks(rows, -1, 600*ms, 700*ms)
			r.faults[0].tasks = []store.ID{{44}}
		}, rescue{took: 500 * ms, calm: true}},
		"nobody saw it":    {func(r *record) { r.breaks(power, 1, 400*ms, time.Minute) }, rescue{took: 500 * ms, calm: true, silent: true}},
		"by the successor": {func(r *record) { r.lives[0].worker = 1 }, rescue{took: 500 * ms, calm: true, own: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := goodRecord()
			token := r.works(1, "ingest", 1, 450*ms, 0, "")
			r.writes(token, "ingest", 1, heir, 900*ms, "expired")
			r.lives[1].killed, r.lives[1].ended = after(died), after(died)
			c.also(r)
			v := r.judged()
			if len(v.violations) != 0 || len(v.rescues) != 1 || v.rescues[0] != c.want {
				t.Errorf("%v, %+v; want %+v", v.violations, v.rescues, c.want)
			}
		})
	}
}

func TestPercentilesAreThoseOfTheChosen(t *testing.T) {
	t.Parallel()
	var all []rescue
	for i := range 200 {
		all = append(all, rescue{took: time.Duration(200-i) * time.Second, calm: i%2 == 0})
	}
	p50, p99 := percentiles(all, func(r rescue) bool { return r.calm })
	if p50 == nil || *p50 != 100_000 || *p99 != 198_000 {
		t.Errorf("%v, %v", *p50, *p99)
	}
	if p50, p99 := percentiles(all, func(rescue) bool { return false }); p50 != nil || p99 != nil {
		t.Errorf("%v, %v", p50, p99)
	}
}
