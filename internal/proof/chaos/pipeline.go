package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strings"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

const (
	pipelineName = "chaos"
	// slots is how many tasks a worker works on at once in each stage. One worker
	// can do it all, with room for the long ones.
	slots = 24
	// maxAttempts leaves room for attempts that end with their worker.
	maxAttempts = 6
)

// needs is the shape of the pipeline, the same as that for videos.
var needs = []store.Node{
	{Name: "ingest"},
	{Name: "transcode", Needs: []string{"ingest"}},
	{Name: "metadata", Needs: []string{"ingest"}},
	{Name: "assemble", Needs: []string{"transcode", "metadata"}},
	{Name: "publish", Needs: []string{"assemble"}},
}

func newPipeline(l *laborer) *stages.Pipeline {
	var all []stages.Stage
	for _, n := range needs {
		all = append(all, stages.Stage{
			Name: n.Name, Needs: n.Needs, Work: l.work, Workers: slots, MaxAttempts: maxAttempts,
			Backoff: stages.Backoff{Base: 200 * ms, Max: 2 * time.Second},
		})
	}
	p, err := stages.New(pipelineName, all...)
	if err != nil {
		panic(err) // it is as constant as can be
	}
	return p
}

func graph() store.Graph { return newPipeline(nil).Graph() }

// longSource begins the source of a task whose transcoding takes longer than
// the lease of a worker.
const longSource = "long"

const longWork = 45 * time.Second

// laborer does the work of a process, and writes that down.
type laborer struct {
	*journal
	dawdling string // a file; see dawdle
}

// work is every stage's: it does nothing, and writes down that it does. How
// long that takes, and how it ends, follows from the task's source, the stage
// and the attempt, so that it is the same in a repeated run.
func (l *laborer) work(ctx context.Context, job *stages.Job) (result any, err error) {
	l.write(entry{
		What: startOfWork, Task: job.Task, Source: job.Source, Stage: job.Stage, Attempt: job.Attempt, Token: job.Token,
	})
	how := endedWithPanic
	defer func() { l.write(entry{What: endOfWork, Task: job.Task, Stage: job.Stage, Token: job.Token, How: how}) }()
	lot := draw(job)
	err = idle(ctx, job, lot.takes)
	if err == nil {
		err = l.dawdle(ctx, job)
	}
	if err != nil {
		how = endedEarly
		return nil, err
	}
	switch how = lot.ends; how {
	case endedBadly:
		return nil, lot.err
	case endedForGood:
		return nil, stages.Permanent(lot.err)
	case endedWithPanic:
		panic(lot.err)
	}
	return job.Source, nil
}

// dawdle makes another attempt take as long as the task is in the list of those
// that a frozen worker held: the stale outcomes of that one are to meet claims
// that are being worked on.
func (l *laborer) dawdle(ctx context.Context, job *stages.Job) error {
	for job.Attempt > 1 {
		list, err := os.ReadFile(l.dawdling)
		if err != nil || !bytes.Contains(list, []byte(job.Task.String())) {
			return nil
		}
		if err := pause(ctx, 50*ms); err != nil {
			return err
		}
	}
	return nil
}

// lot is what an attempt has drawn.
type lot struct {
	takes time.Duration
	ends  string
	err   error
}

func draw(job *stages.Job) lot {
	h := fnv.New64a()
	fmt.Fprint(h, job.Source, "/", job.Stage, "/", job.Attempt)
	n := h.Sum64() >> 8 // the low bits of this hash are poor
	l := lot{ends: endedWell, err: errors.New("as it was drawn")}
	switch chance := n % 1000; {
	case chance < 30:
		l.ends = endedBadly
	case chance < 40:
		l.ends, l.err = endedBadly, stages.RetryAfter(700*ms, l.err)
	case chance < 44:
		l.ends = endedForGood
	case chance < 47:
		l.ends = endedWithPanic
	}
	n /= 1000
	// Most are short, a few take almost half a second.
	l.takes = 5*ms + time.Duration(n%10)*time.Duration(n/10%10)*4*ms
	if job.Stage == "transcode" && strings.HasPrefix(job.Source, longSource) {
		l.takes, l.ends = longWork, endedWell
	}
	return l
}

// idle takes its time, and tells how far it is.
func idle(ctx context.Context, job *stages.Job, d time.Duration) error {
	const parts = 5
	for i := range parts {
		if err := pause(ctx, d/parts); err != nil {
			return err
		}
		job.Progress(stages.Progress{Percent: float64(100 * (i + 1) / parts), Note: "idling"})
	}
	return nil
}
