package stages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cuelight/cuelight/store/engine"
)

// Divide divides a stage of a task into parts, which any processes with free slots work on. It should
// be short. Without parts, Work is called at once. See [Stage].
type Divide func(ctx context.Context, job *Job) ([]Part, error)

// Part is one part of a divided stage. Parts are numbered from 1, in the order that [Divide] or
// [DivideAgain] got them.
type Part struct {
	// Spec says what is to be done. It is stored as JSON, and [Spec] reads it.
	Spec any
	// Keep, for [DivideAgain] only, says that the completed part of this number stays as it is, with its
	// spec and its result.
	Keep bool
}

// maxParts is the limit of parts of one stage of a task.
const maxParts = 100_000

// Spec reads the spec of the job's part.
func Spec[T any](j *Job) (T, error) {
	var v T
	if err := json.Unmarshal(j.Spec, &v); err != nil {
		return v, fmt.Errorf("read spec of part %d of %s: %w", j.Part, j.Stage, err)
	}
	return v, nil
}

// PartResults reads the results of the parts of the job's stage, in their order, for Work.
func PartResults[T any](ctx context.Context, j *Job) ([]T, error) {
	raw, err := j.OnPartResults(ctx)
	if err != nil {
		return nil, fmt.Errorf("read results of the parts of %s: %w", j.Stage, err)
	}
	all := make([]T, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &all[i]); err != nil {
			return nil, fmt.Errorf("read result of part %d of %s: %w", i+1, j.Stage, err)
		}
	}
	return all, nil
}

// Wrap replaces the stage's Work and Part by what wrap makes of them.
func (s *Stage) Wrap(wrap func(Work) Work) {
	if s.Work != nil {
		s.Work = wrap(s.Work)
	}
	if s.Part != nil {
		s.Part = wrap(s.Part)
	}
}

// do calls the stage's function for the job: Part, Work, or Divide, and Work where there are no parts.
// It returns the division if the stage was divided.
func (s *Stage) do(ctx context.Context, job *Job) (result any, d *division, err error) {
	if job.Part > 0 {
		result, err = s.Part(ctx, job)
		return result, nil, refuseDivision(err)
	}
	if s.Divide != nil && job.Parts == 0 {
		parts, err := s.Divide(ctx, job)
		if err != nil {
			return nil, nil, refuseDivision(err)
		}
		if len(parts) > 0 {
			d, err = newDivision(parts, 0)
			return nil, d, err
		}
	}
	result, err = s.Work(ctx, job)
	again, ok := errors.AsType[*divideAgainError](err)
	switch {
	case !ok:
		return result, nil, err
	case job.Parts == 0:
		return nil, nil, refuseDivision(err)
	case again.why != nil && context.Cause(ctx) != nil:
		return nil, nil, again.why // what a cancelled attempt found may be due to the cancel
	}
	if d, err = newDivision(again.parts, job.Parts); err != nil {
		return nil, nil, err
	}
	d.why = again.why
	return nil, d, nil
}

// DivideAgain returns an error for the Work of a stage that was divided: these parts replace those that it was
// called to join, and it is called again when all are completed. Parts to Keep are not done again, the others
// are, with their new specs. There may be more parts than before, or fewer; one at least is not kept.
//
// Without an error, the parts are the next phase of the work. That is no attempt of the stage, as Divide is
// none, and there is no limit. With one, which says why parts must be done again although they were completed,
// because their files are lost, the join is an attempt of the stage: the history has the error, and after
// MaxAttempts the stage is dead. Marks of that error, such as [Permanent], do not count; and if the context
// is done, the attempt ends with that error and the parts stay.
func DivideAgain(parts []Part, why error) error { return &divideAgainError{parts, why} }

// divideAgainError does not unwrap: marks of the reason do not count.
type divideAgainError struct {
	parts []Part
	why   error
}

func (e *divideAgainError) Error() string {
	if e.why == nil {
		return "divide again"
	}
	return "divide again: " + e.why.Error()
}

// refuseDivision returns the error, or another one if it is of [DivideAgain]: only a join returns that.
func refuseDivision(err error) error {
	if _, ok := errors.AsType[*divideAgainError](err); ok {
		return Permanent(fmt.Errorf("only the Work of a stage that was divided can divide it again: %w", err))
	}
	return err
}

// division is the parts of a stage, as the report needs them.
type division struct {
	specs []json.RawMessage
	kept  []int // numbers of parts; their specs are nil
	why   error // of DivideAgain
}

// newDivision checks parts, of a stage that has so many completed ones.
func newDivision(parts []Part, completed int) (*division, error) {
	d := &division{}
	for i, p := range parts {
		switch {
		case !p.Keep:
		case completed == 0:
			return nil, Permanent(fmt.Errorf("divide: part %d is to be kept, but there is none before DivideAgain", i+1))
		case i >= completed:
			return nil, Permanent(fmt.Errorf("divide again: part %d is to be kept, but there are %d parts", i+1, completed))
		default:
			d.kept = append(d.kept, i+1)
		}
	}
	if len(d.kept) == len(parts) {
		return nil, Permanent(fmt.Errorf("divide again: none of the %d parts is to be done", len(parts)))
	}
	var err error
	d.specs, err = encodeSpecs(parts)
	return d, err
}

// encodeSpecs returns the specs of parts that are not kept as JSON.
func encodeSpecs(parts []Part) ([]json.RawMessage, error) {
	if len(parts) > maxParts {
		return nil, Permanent(fmt.Errorf("divide: %d parts, the limit is %d", len(parts), maxParts))
	}
	specs, size := make([]json.RawMessage, len(parts)), 0
	for i, p := range parts {
		if p.Keep {
			continue
		}
		raw, err := encodeResult(p.Spec)
		if size += len(raw); err == nil && size > maxResult {
			err = Permanent(errors.New("the specs of all parts are larger than the limit of a result"))
		}
		if err != nil {
			return nil, fmt.Errorf("divide: spec of part %d: %w", i+1, err)
		}
		specs[i] = raw
	}
	return specs, nil
}

// setResult sets what an attempt that succeeded reports.
func (f *finished) setResult(result json.RawMessage, d *division) {
	f.kind, f.report.Outcome, f.report.Result = StageCompleted, engine.Completed, result
	switch {
	case d != nil:
		f.kind, f.report.Outcome, f.report.Parts, f.report.Kept = StageDivided, engine.Divided, d.specs, d.kept
		if d.why != nil {
			f.err, f.report.Counted, f.report.Error, f.report.Class = d.why, true, d.why.Error(), "error"
		}
	case f.report.Part > 0:
		f.kind = PartCompleted
	}
}
