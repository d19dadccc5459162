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

// Part is one part of a divided stage. Parts are numbered from 1, in the order that [Divide]
// returned them.
type Part struct {
	// Spec says what is to be done. It is stored as JSON, and [Spec] reads it.
	Spec any
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
// It returns the specs of the parts if the stage was divided.
func (s *Stage) do(ctx context.Context, job *Job) (result any, specs []json.RawMessage, err error) {
	switch {
	case job.Part > 0:
		result, err = s.Part(ctx, job)
		return result, nil, err
	case s.Divide == nil || job.Parts > 0:
		result, err = s.Work(ctx, job)
		return result, nil, err
	}
	parts, err := s.Divide(ctx, job)
	if err != nil {
		return nil, nil, err
	}
	if len(parts) == 0 {
		result, err = s.Work(ctx, job)
		return result, nil, err
	}
	specs, err = encodeSpecs(parts)
	return nil, specs, err
}

// encodeSpecs returns the specs of parts as JSON.
func encodeSpecs(parts []Part) ([]json.RawMessage, error) {
	if len(parts) > maxParts {
		return nil, Permanent(fmt.Errorf("divide: %d parts, the limit is %d", len(parts), maxParts))
	}
	specs, size := make([]json.RawMessage, len(parts)), 0
	for i, p := range parts {
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
func (f *finished) setResult(result json.RawMessage, specs []json.RawMessage) {
	f.kind, f.report.Outcome, f.report.Result = StageCompleted, engine.Completed, result
	switch {
	case specs != nil:
		f.kind, f.report.Outcome, f.report.Parts = StageDivided, engine.Divided, specs
	case f.report.Part > 0:
		f.kind = PartCompleted
	}
}
