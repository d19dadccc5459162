package media

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// startSpan opens a span for a child within that of ctx, by whoever made that one.
// Where nobody records that one there is none, and it costs nothing.
func (c command) startSpan(ctx context.Context) (context.Context, trace.Span) {
	within := trace.SpanFromContext(ctx)
	if !within.IsRecording() {
		return ctx, nil
	}
	tracer := within.TracerProvider().Tracer("github.com/cuelight/cuelight/internal/media")
	return tracer.Start(ctx, c.tool, trace.WithAttributes(attribute.String("purpose", c.purpose)))
}

// endSpan tells a span what became of the child. Its arguments are left out: they are
// long, and hold the paths of this host.
func (c command) endSpan(span trace.Span, out stderrReport, err error) {
	if span == nil {
		return
	}
	defer span.End()
	if out.cpu > 0 {
		span.SetAttributes(attribute.Float64("cpu_s", out.cpu.Seconds()))
	}
	if out.errors > 0 {
		span.SetAttributes(attribute.Int64("decode_errors", out.errors))
	}
	if reader, ok := c.stdout.(*progressReader); ok {
		reader.setSpanAttributes(span)
	}
	exit := (*exitError)(nil)
	switch {
	case err == nil:
		span.SetAttributes(attribute.Int("process.exit.code", 0))
		return
	case !errors.As(err, &exit):
	case exit.signal != 0:
		span.SetAttributes(attribute.String("signal", exit.signal.String()))
	default:
		span.SetAttributes(attribute.Int("process.exit.code", exit.code))
	}
	span.SetStatus(codes.Error, spanStatus(err))
}

// setSpanAttributes tells a span how far the child came, and how fast: in seconds of media
// for each second.
func (r *progressReader) setSpanAttributes(span trace.Span) {
	took := r.now().Sub(r.start).Seconds()
	if r.position <= 0 || took <= 0 {
		return
	}
	span.SetAttributes(
		attribute.Float64("media_s", round3(r.position)),
		attribute.Float64("speed", round3(r.position/took)),
		attribute.Int64("frames", r.frames),
	)
}

// spanStatus is enough of an error to know it by.
func spanStatus(err error) string {
	const most = 1 << 10
	text := err.Error()
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
