package trace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/propagation"
	api "go.opentelemetry.io/otel/trace"

	"github.com/cuelight/cuelight/store"
)

const header = "traceparent"

// Traceparent is the W3C Trace Context header for the span of ctx, or empty without one.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[header]
}

// ID is the trace id of a task's attempts, for log lines and links. The traceparent is that
// of the submission, or empty. ID is empty if tracing is off and the submission has no
// traceparent.
func (t *Tracer) ID(task store.ID, traceparent string) string {
	if parent := parse(traceparent); parent.IsValid() {
		return parent.TraceID().String()
	}
	if t == nil {
		return ""
	}
	return traceOf(task).String()
}

// parse reads a traceparent. The result of anything else is not valid.
func parse(traceparent string) api.SpanContext {
	if traceparent == "" {
		return api.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{header: traceparent})
	return api.SpanContextFromContext(ctx)
}

// withParent is ctx with the span of a traceparent, if that is valid.
func withParent(ctx context.Context, traceparent string) context.Context {
	if parent := parse(traceparent); parent.IsValid() {
		return api.ContextWithRemoteSpanContext(ctx, parent)
	}
	return ctx
}

// traceOf is the trace id of a task submitted without one: the same for all its attempts on
// all hosts. It is a hash, because samplers need random bits, which task ids lack.
func traceOf(task store.ID) (id api.TraceID) {
	sum := sha256.Sum256(append([]byte("trace of task "), task[:]...))
	copy(id[:], sum[:])
	return id
}

// taskKey is the key of the task in the context of a span that has no parent.
type taskKey struct{}

// ids generates the ids of spans, and of traces that start here.
type ids struct{}

// NewIDs implements sdk.IDGenerator.
func (ids) NewIDs(ctx context.Context) (api.TraceID, api.SpanID) {
	var id api.TraceID
	if task, ok := ctx.Value(taskKey{}).(store.ID); ok {
		id = traceOf(task)
	}
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id, ids{}.NewSpanID(ctx, id)
}

// NewSpanID implements sdk.IDGenerator.
func (ids) NewSpanID(context.Context, api.TraceID) (id api.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
