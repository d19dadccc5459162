package stages

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Job is an attempt as [Work] sees it.
type Job struct {
	Task        store.ID
	Source      string          // what was submitted
	Params      json.RawMessage // the task's parameters, a JSON object
	UserID      string          // empty for none
	Stage       string          // the stage's name
	Attempt     int             // 1 for the first
	MaxAttempts int             // of the stage, with the attempts of a part counted apart

	// Parts is how many parts the stage was divided into; 0 if it was not. Part is the number of one,
	// counted from 1, and Spec says what is to be done; see [Spec]. Without Part, all are completed,
	// and Work joins them.
	Parts int
	Part  int
	Spec  json.RawMessage

	// Traceparent is the W3C Trace Context header of the submission, or empty.
	Traceparent string

	// Token is unique to this attempt. Other systems can use it as an idempotency key or a
	// fencing token.
	Token store.ID

	// Results reads the result of a stage of this task, OnPartResults those of the parts of this
	// stage, OnProgress receives the attempt's progress, and OnConfirm checks the claim. The Runner
	// sets them; a test of Work may set its own. See [Result], [PartResults], [Job.Progress] and
	// [Job.Confirm].
	Results       func(ctx context.Context, stage string) (json.RawMessage, error)
	OnPartResults func(ctx context.Context) ([]json.RawMessage, error)
	OnProgress    func(Progress)
	OnConfirm     func(ctx context.Context) error
}

// Progress is the progress of an attempt. All fields are optional.
type Progress struct {
	Percent float64       // 0 to 100; negative: not known
	Speed   float64       // media seconds per second; 0: does not apply
	ETA     time.Duration // estimated time left; 0: not known
	Note    string        // what it does, a word or two
}

// Progress reports the attempt's progress. It may be called often and never blocks.
func (j *Job) Progress(p Progress) {
	if j.OnProgress != nil {
		j.OnProgress(p)
	}
}

// Confirm checks in the database that the claim is valid, and returns [ErrCancelled] or
// [ErrLeaseLost] if it is not. Call it before an irreversible step: a process that was
// suspended for a while does not know yet that another worker has its claim.
func (j *Job) Confirm(ctx context.Context) error {
	if j.OnConfirm == nil {
		return nil
	}
	return j.OnConfirm(ctx)
}

// Result reads the result of a stage of the job's task. The job's stage must need that stage,
// directly or not, so that it is completed.
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
