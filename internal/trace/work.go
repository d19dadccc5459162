package trace

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	api "go.opentelemetry.io/otel/trace"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/stages"
)

// Stages returns copies of the stages whose Work and Part are traced, see [Tracer.Work]; while tracing
// is off, the stages themselves.
func (t *Tracer) Stages(all []stages.Stage) []stages.Stage {
	if t == nil {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		all[i].Wrap(t.Work)
	}
	return all
}

// Work wraps work with a span for each attempt, below that of the submitter in the Job's
// Traceparent. The context of work has the span.
func (t *Tracer) Work(work stages.Work) stages.Work {
	if t == nil {
		return work
	}
	return func(ctx context.Context, job *stages.Job) (result any, err error) {
		ctx, span := t.attempt(ctx, job)
		// The Runner recovers panics, with their stack.
		err = errNoReturn
		defer func() { endSpan(span, redact.Error(err, job.Source), context.Cause(ctx)) }()
		result, err = work(ctx, job)
		return result, err
	}
}

// errNoReturn is the error of work that did not return.
var errNoReturn = errors.New("work panicked or ended its goroutine")

// attempt starts the span of an attempt.
func (t *Tracer) attempt(ctx context.Context, job *stages.Job) (context.Context, api.Span) {
	options := []api.SpanStartOption{
		api.WithSpanKind(api.SpanKindConsumer),
		api.WithAttributes(
			attribute.String("task_id", job.Task.String()),
			attribute.String("stage", job.Stage),
			attribute.Int("attempt", job.Attempt),
		),
	}
	if parent := parse(job.Traceparent); parent.IsValid() {
		ctx = api.ContextWithRemoteSpanContext(ctx, parent)
		options = append(options, api.WithLinks(api.Link{SpanContext: parent.WithRemote(true)}))
	} else {
		ctx = context.WithValue(ctx, taskKey{}, job.Task)
		options = append(options, api.WithNewRoot())
	}
	return t.tracer.Start(ctx, job.Stage+" attempt", options...)
}

// endSpan ends the span of an attempt: err is the result of work, and cause that of its
// context, if that has ended.
func endSpan(span api.Span, err, cause error) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	outcome, kind := classify(err, cause)
	span.SetAttributes(attribute.String("outcome", outcome))
	if kind == "" {
		return
	}
	span.SetAttributes(attribute.String("error.type", kind))
	if cause != nil {
		span.SetAttributes(attribute.String("cause", brief(cause)))
	}
	if outcome == "failed" {
		span.SetStatus(codes.Error, brief(err))
	}
}

// classify is the outcome of an attempt, as far as it is known before the Runner's report,
// and the type of its error.
func classify(err, cause error) (outcome, kind string) {
	_, hasDelay := stages.RetryDelay(err)
	switch {
	case err == nil:
		return "completed", ""
	case errors.Is(cause, stages.ErrDraining):
		return "released", "draining"
	case errors.Is(cause, stages.ErrCancelled):
		return "released", "cancelled"
	case errors.Is(cause, stages.ErrLeaseLost):
		return "released", "lease_lost"
	case errors.Is(cause, stages.ErrTimeout):
		return "failed", "timeout"
	case errors.Is(cause, stages.ErrStalled):
		return "failed", "stalled"
	case cause != nil:
		return "released", "interrupted"
	case errors.Is(err, errNoReturn):
		return "failed", "panic"
	case stages.IsPermanent(err):
		return "failed", "permanent"
	case stages.IsPostponed(err):
		return "released", "postponed"
	case hasDelay:
		return "failed", "retry_after"
	}
	return "failed", "error"
}

// brief is the beginning of an error's text. The history of the task has all of it.
func brief(err error) string {
	const limit = 1 << 10
	text := err.Error()
	if len(text) > limit {
		text = text[:limit] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
