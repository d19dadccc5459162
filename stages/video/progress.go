package video

import (
	"fmt"
	"sync"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// stepReporter tells of something that goes on, as often as it is called.
type stepReporter func(n int64)

// reportSteps tells what a job is doing from now on, and counts in the note: every
// step is a change, which is what the watchdog goes by, and nothing else is.
// Percent is that of the whole stage, negative where that is not known.
func reportSteps(job *stages.Job, percent float64, note string) stepReporter {
	job.Progress(stages.Progress{Percent: percent, Note: note})
	return func(n int64) {
		job.Progress(stages.Progress{Percent: percent, Note: fmt.Sprintf("%s %d", note, n)})
	}
}

// withLastNote is a job of which the last note can be told.
func withLastNote(job *stages.Job) (*stages.Job, func() string) {
	var (
		mu   sync.Mutex
		last string
	)
	told := *job
	told.OnProgress = func(p stages.Progress) {
		mu.Lock()
		last = p.Note
		mu.Unlock()
		job.Progress(p)
	}
	return &told, func() string {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// counter counts calls.
func (c stepReporter) counter() func() {
	n := int64(0)
	return func() { n++; c(n) }
}

// tools are those that tell a job of their steps.
func (c Config) tools(job *stages.Job, percent float64, note string) Tools {
	t := c.Tools
	t.Step = reportSteps(job, percent, note)
	return t
}

// transcodeReporter tells how far a transcode has come. Its steps are told beside its
// percentage, which may stand still while the work goes on: before the first
// frame is out, and where a source is longer than it seemed.
type transcodeReporter struct {
	job *stages.Job

	mu    sync.Mutex
	last  media.Progress
	steps int64
}

func (t *transcodeReporter) progress(p media.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = p
	t.report()
}

func (t *transcodeReporter) step(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = n
	t.report()
}

func (t *transcodeReporter) report() {
	t.job.Progress(stages.Progress{
		Percent: t.last.Percent, Speed: t.last.Speed, ETA: t.last.ETA, Note: fmt.Sprintf("transcoding %d", t.steps),
	})
}
