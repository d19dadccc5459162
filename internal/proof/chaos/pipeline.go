package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

const (
	pipelineName = "chaos"
	// slotsPerStage lets one worker do all the work, including the long tasks.
	slotsPerStage = 24
	// maxAttempts leaves room for attempts that end with their worker.
	maxAttempts = 6
)

// dividedStage is the stage that is divided into up to maxParts parts, and perhaps again.
const (
	dividedStage = "transcode"
	maxParts     = 5
)

// nodes give the pipeline the shape of the one for videos.
var nodes = []store.Node{
	{Name: "ingest"},
	{Name: dividedStage, Needs: []string{"ingest"}, Divides: true},
	{Name: "metadata", Needs: []string{"ingest"}},
	{Name: "assemble", Needs: []string{"transcode", "metadata"}},
	{Name: "publish", Needs: []string{"assemble"}},
}

func newPipeline(w *logWriter) *stages.Pipeline {
	var all []stages.Stage
	for _, n := range nodes {
		s := stages.Stage{
			Name: n.Name, Needs: n.Needs, Work: w.work, Slots: slotsPerStage, MaxAttempts: maxAttempts,
			Backoff: stages.Backoff{Base: 200 * ms, Max: 2 * time.Second},
		}
		if n.Divides {
			s.Divide, s.Part = w.divide, w.work
		}
		all = append(all, s)
	}
	p, err := stages.New(pipelineName, all...)
	if err != nil {
		panic(err) // the pipeline is a constant
	}
	return p
}

func graph() store.Graph { return newPipeline(nil).Graph() }

// The source of a long task begins with longSource. The first part of its transcode stage takes longer
// than the lease of a worker.
const (
	longSource = "long"
	longWork   = 45 * time.Second
)

// waitWhileSlow makes a further attempt last as long as a file lists its task, which a worker had claimed when it was frozen
// for longer than its lease. The outdated outcomes of that worker then meet claims in progress.
func (w *logWriter) waitWhileSlow(ctx context.Context, job *stages.Job) error {
	isListed := func(file string) bool {
		list, _ := os.ReadFile(file) // it may have been removed
		return bytes.Contains(list, []byte(job.Task.String()))
	}
	for job.Attempt > 1 {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(w.file.Name()), "slow-*"))
		if err != nil || !slices.ContainsFunc(files, isListed) {
			return err
		}
		if err := ctxsleep.For(ctx, 50*ms); err != nil {
			return err
		}
	}
	return nil
}

// divide makes as many parts as follow from the source. Where it makes none, work follows, which is
// the execution of the claim.
func (w *logWriter) divide(ctx context.Context, job *stages.Job) (parts []stages.Part, err error) {
	if partsOf(job.Source) == 0 {
		return nil, nil
	}
	_, err = w.execute(ctx, job, func() []stages.Part {
		parts = numbered(partsOf(job.Source))
		return parts
	})
	return parts, err
}

// numbered returns parts whose specs are their numbers.
func numbered(n int) []stages.Part {
	parts := make([]stages.Part, n)
	for i := range parts {
		parts[i].Spec = i + 1
	}
	return parts
}

// work does a stage or a part, or joins parts, and divides some stages again.
func (w *logWriter) work(ctx context.Context, job *stages.Job) (result any, err error) {
	var why error
	var parts []stages.Part
	result, err = w.execute(ctx, job, func() []stages.Part {
		parts, why = furtherParts(job)
		return parts
	})
	if err == nil && parts != nil {
		return nil, stages.DivideAgain(parts, why)
	}
	return result, err
}

// execute only waits. Its duration and its end follow from the source of the task, the stage, the part and
// the attempt, so a repeated run has the same. The result is the token, which tells a join whose results it read.
// At a planned success, divide says into which parts the stage is divided, if it is.
func (w *logWriter) execute(ctx context.Context, job *stages.Job, divide func() []stages.Part) (result any, err error) {
	w.write(logEntry{
		What: startEntry, Task: job.Task, Source: job.Source, Stage: job.Stage, Part: job.Part, Attempt: job.Attempt,
		Token: job.Token, IsJoin: isJoin(job),
	})
	end := logEntry{What: endEntry, Task: job.Task, Stage: job.Stage, Part: job.Part, Token: job.Token, How: endedPanic}
	defer func() { w.write(end) }()
	b := behaviourOf(job)
	if err = ctxsleep.For(ctx, b.duration/2); err == nil {
		job.Progress(stages.Progress{Percent: 50, Note: "waiting"})
		err = ctxsleep.For(ctx, b.duration/2)
	}
	if err == nil {
		err = w.waitWhileSlow(ctx, job)
	}
	if err == nil && isJoin(job) {
		end.Joined, err = stages.PartResults[store.ID](ctx, job)
	}
	if err == nil && job.Part > 0 {
		if spec, err := stages.Spec[int](job); err != nil || spec != job.Part {
			end.How = endedInterrupted // the history will have another end, which breaks a rule
			return nil, fmt.Errorf("the spec is %d: %w", spec, err)
		}
	}
	if err != nil {
		end.How = endedInterrupted
		if ctx.Err() == nil { // the results of the parts could not be read
			end.How = endedFailed
		}
		return nil, err
	}
	switch end.How = b.end; end.How {
	case endedFailed:
		return nil, b.err
	case endedPermanent:
		return nil, stages.Permanent(b.err)
	case endedPanic:
		panic(b.err)
	}
	end.setParts(divide())
	return job.Token, nil
}

// setParts records a division into parts, if there are some.
func (e *logEntry) setParts(parts []stages.Part) {
	if parts == nil {
		return
	}
	e.How, e.Count = endedDivided, len(parts)
	for i, p := range parts {
		if p.Keep {
			e.Kept = append(e.Kept, i+1)
		}
	}
}

// furtherParts is what a join asks for instead of its end, by the source: nothing; once, another part and the even ones
// again, as the next phase; or at its first attempt, the odd ones again, because they were lost.
func furtherParts(job *stages.Job) (parts []stages.Part, why error) {
	if !isJoin(job) {
		return nil, nil
	}
	n, isKept := job.Parts, func(part int) bool { return part%2 == 1 && part <= job.Parts }
	switch phase := sourceHash(job.Source) / (maxParts + 1) % 4; {
	case phase == 0 && n == partsOf(job.Source):
		n++
	case phase == 1 && job.Attempt == 1 && !strings.HasPrefix(job.Source, longSource):
		isKept, why = func(part int) bool { return part%2 == 0 }, errors.New("parts were lost")
	default:
		return nil, nil
	}
	parts = numbered(n)
	for i := range parts {
		parts[i].Keep = isKept(i + 1)
	}
	return parts, why
}

// isJoin reports whether an attempt joins the parts of its stage.
func isJoin(job *stages.Job) bool { return job.Parts > 0 && job.Part == 0 }

// partsOf is the number of parts that the divided stage of a task has.
func partsOf(source string) int {
	n := int(sourceHash(source) % (maxParts + 1))
	if strings.HasPrefix(source, longSource) {
		return max(n, 1)
	}
	return n
}

func sourceHash(source string) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, source)
	return h.Sum64() >> 8 // the low bits of this hash are not random enough
}

// behaviour is how long an attempt takes, and how it ends.
type behaviour struct {
	duration time.Duration
	end      string
	err      error
}

func behaviourOf(job *stages.Job) behaviour {
	n := sourceHash(fmt.Sprint(job.Source, "/", job.Stage, "/", job.Part, "/", job.Attempt, "/", job.Parts > 0))
	b := behaviour{end: endedCompleted, err: errors.New("planned failure")}
	switch chance := n % 1000; {
	case chance < 30:
		b.end = endedFailed
	case chance < 40:
		b.end, b.err = endedFailed, stages.RetryAfter(700*ms, b.err)
	case chance < 44:
		b.end = endedPermanent
	case chance < 47:
		b.end = endedPanic
	}
	n /= 1000
	// Most attempts are short, a few take almost half a second.
	b.duration = 5*ms + time.Duration(n%10)*time.Duration(n/10%10)*4*ms
	switch {
	case job.Stage == dividedStage && job.Part == 0: // a process does only two of these at once
		b.duration /= 8
	case job.Part == 1 && strings.HasPrefix(job.Source, longSource):
		b.duration, b.end = longWork, endedCompleted
	}
	return b
}
