package stages

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Job is one claim as [Work] sees it: which task, which stage, which attempt.
type Job struct {
	Task    store.ID        // the task
	Source  string          // what was submitted
	Params  json.RawMessage // the task's parameters, a JSON object
	UserID  string          // whose task it is, or empty
	Stage   string          // the stage being worked on
	Attempt int             // 1 for the first try

	// Traceparent is the header of W3C Trace Context of whoever submitted the
	// task, or empty.
	Traceparent string

	// Token names this claim, and nothing else ever: a key for whatever must
	// be done once, or must be refused to those who came too late, in other
	// systems.
	Token store.ID

	// Results reads what a stage of this task returned, OnProgress is told how
	// far the attempt has come, and OnConfirm asks whether the claim still
	// holds. The Runner sets them; a test of a stage's Work may set its own. See
	// [Result], [Job.Progress] and [Job.Confirm].
	Results    func(ctx context.Context, stage string) (json.RawMessage, error)
	OnProgress func(Progress)
	OnConfirm  func(ctx context.Context) error
}

// Progress is how far an attempt has come. All fields are optional.
type Progress struct {
	Percent float64       // 0 to 100; negative where the end is not known
	Speed   float64       // media seconds per second of wall time; 0 where it does not apply
	ETA     time.Duration // estimated time left; 0 where it is not known
	Note    string        // what is being done, a word or two
}

// Progress tells whoever watches how far the attempt has come. It may be
// called as often as is convenient and never blocks.
func (j *Job) Progress(p Progress) {
	if j.OnProgress != nil {
		j.OnProgress(p)
	}
}

// Confirm asks the database whether the claim still holds, and returns
// [ErrCancelled] or [ErrLeaseLost] if it does not. It is for the moment before something that
// cannot be taken back: a process that stood still meanwhile does not know yet
// that somebody else has its claim.
func (j *Job) Confirm(ctx context.Context) error {
	if j.OnConfirm == nil {
		return nil
	}
	return j.OnConfirm(ctx)
}

// Result reads what the named stage returned for this job's task. The stage
// must be one that this one depends on, directly or not, so that it is
// certainly completed.
func Result[T any](ctx context.Context, j *Job, stage string) (T, error) {
	var v T
	raw, err := j.Results(ctx, stage)
	if err != nil {
		return v, fmt.Errorf("read result of %s: %w", stage, err)
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("read result of %s: %w", stage, err)
	}
	return v, nil
}
