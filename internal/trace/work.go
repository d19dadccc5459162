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

// Stages are stages whose Work is traced, see [Tracer.Work]. It leaves all as they
// are; off, it returns them.
func (t *Tracer) Stages(all []stages.Stage) []stages.Stage {
	if t == nil {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		all[i].Work = t.Work(all[i].Work)
	}
	return all
}

// Work is work within a span, one for each attempt: below that of the submitter,
// as the Job's Traceparent has it. The context that work is given holds the span.
func (t *Tracer) Work(work stages.Work) stages.Work {
	if t == nil {
		return work
	}
	return func(ctx context.Context, job *stages.Job) (result any, err error) {
		ctx, span := t.attempt(ctx, job)
		// A panic is for the Runner to catch, which keeps the stack.
		err = errUnfinished
		defer func() { conclude(span, redact.Error(err, job.Source), context.Cause(ctx)) }()
		result, err = work(ctx, job)
		return result, err
	}
}

// errUnfinished is what work failed with that did not return.
var errUnfinished = errors.New("work panicked or ended its goroutine")

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

// conclude ends an attempt's span: err is what work returned, and why the cause of
// its context's end, if it ended.
func conclude(span api.Span, err, why error) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	outcome, kind := judge(err, why)
	span.SetAttributes(attribute.String("outcome", outcome))
	if kind == "" {
		return
	}
	span.SetAttributes(attribute.String("error.type", kind))
	if why != nil {
		span.SetAttributes(attribute.String("cause", brief(why)))
	}
	if outcome == "failed" {
		span.SetStatus(codes.Error, brief(err))
	}
}

// judge says what became of an attempt, as far as that is known before the Runner
// has reported it, and the word for why.
func judge(err, why error) (outcome, kind string) {
	_, later := stages.RetryDelay(err)
	switch {
	case err == nil:
		return "completed", ""
	case errors.Is(why, stages.ErrDraining):
		return "released", "draining"
	case errors.Is(why, stages.ErrCancelled):
		return "released", "cancelled"
	case errors.Is(why, stages.ErrLeaseLost):
		return "released", "lease_lost"
	case errors.Is(why, stages.ErrTimeout):
		return "failed", "timeout"
	case errors.Is(why, stages.ErrStalled):
		return "failed", "stalled"
	case why != nil:
		return "released", "interrupted"
	case errors.Is(err, errUnfinished):
		return "failed", "panic"
	case stages.IsPermanent(err):
		return "failed", "permanent"
	case stages.IsPostponed(err):
		return "released", "postponed"
	case later:
		return "failed", "retry_after"
	}
	return "failed", "error"
}

// brief is enough of an error to know it by. All of it is in the task's history.
func brief(err error) string {
	const most = 1 << 10
	text := err.Error()
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
