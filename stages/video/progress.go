package video

import (
	"fmt"
	"sync"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// stepReporter reports the n-th step of an activity.
type stepReporter func(n int64)

// reportSteps reports that an activity starts, and returns a function that reports
// its steps by a number in the note. The watchdog counts changes of the note and
// nothing else as progress. percent is that of the whole stage, negative if
// unknown.
func reportSteps(job *stages.Job, percent float64, note string) stepReporter {
	job.Progress(stages.Progress{Percent: percent, Note: note})
	return func(n int64) {
		job.Progress(stages.Progress{Percent: percent, Note: fmt.Sprintf("%s %d", note, n)})
	}
}

// withLastNote returns a job, and a function that returns the last reported note.
func withLastNote(job *stages.Job) (*stages.Job, func() string) {
	var (
		mu   sync.Mutex
		last string
	)
	observed := *job
	observed.OnProgress = func(p stages.Progress) {
		mu.Lock()
		last = p.Note
		mu.Unlock()
		job.Progress(p)
	}
	return &observed, func() string {
		mu.Lock()
		defer mu.Unlock()
		return last
	}
}

// counter returns a function that reports the next step on each call.
func (c stepReporter) counter() func() {
	n := int64(0)
	return func() { n++; c(n) }
}

// tools returns Tools that report their steps to a job.
func (c Config) tools(job *stages.Job, percent float64, note string) Tools {
	t := c.Tools
	t.Step = reportSteps(job, percent, note)
	return t
}

// transcodeReporter reports a transcode. It reports steps in addition to the
// percentage, which may stand still while ffmpeg works: before the first frame, and
// if a source is longer than its header says.
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
	p := stages.Progress{Percent: t.last.Percent, Speed: t.last.Speed, ETA: t.last.ETA, Note: "transcoding"}
	if t.last.FailedEncoder != "" {
		p.Note = fmt.Sprintf("%s failed, transcoding again with %s", t.last.FailedEncoder, t.last.Encoder)
		if p.Speed == 0 {
			p.Percent = -1 // so that the note is shown, before the percentage begins at 0 again
		}
	}
	p.Note += fmt.Sprintf(" %d", t.steps)
	t.job.Progress(p)
}
