package media

import (
	"context"
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// startSpan starts a span for a child below that of ctx, with the same tracer
// provider. If ctx has no recording span, it returns nil.
func (c command) startSpan(ctx context.Context) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, nil
	}
	tracer := parent.TracerProvider().Tracer("github.com/cuelight/cuelight/internal/media")
	return tracer.Start(ctx, c.tool, trace.WithAttributes(attribute.String("purpose", c.purpose)))
}

// endSpan records the result. It leaves out the arguments, which are long and contain
// paths of this host.
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

// setSpanAttributes records position, frames and speed in media seconds per second.
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

// spanStatus shortens an error.
func spanStatus(err error) string {
	const maxBytes = 1 << 10
	text := err.Error()
	if len(text) > maxBytes {
		text = text[:maxBytes] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
