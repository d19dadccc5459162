package trace

import (
	"context"

	api "go.opentelemetry.io/otel/trace"
)

// FromContext returns the trace and span ids of ctx, for the keys trace_id
// and span_id of a log line; empty without a span.
func FromContext(ctx context.Context) (traceID, spanID string) {
	span := api.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return "", ""
	}
	return span.TraceID().String(), span.SpanID().String()
}
