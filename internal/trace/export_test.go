package trace

import (
	"context"

	api "go.opentelemetry.io/otel/trace"
)

// FromContext is the trace and the span that ctx is within, for the keys trace_id
// and span_id of a log line; empty where there is none.
func FromContext(ctx context.Context) (traceID, spanID string) {
	within := api.SpanContextFromContext(ctx)
	if !within.IsValid() {
		return "", ""
	}
	return within.TraceID().String(), within.SpanID().String()
}
