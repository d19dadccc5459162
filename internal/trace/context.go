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

// Traceparent is the header of W3C Trace Context that hands on the span of ctx;
// empty where there is none.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[header]
}

// ID is the trace that attempts of a task are in, which was submitted with a
// traceparent or with none: for log lines of what has no context, and for links.
// Empty where this is off and the submitter had none either.
func (t *Tracer) ID(task store.ID, traceparent string) string {
	if parent := parse(traceparent); parent.IsValid() {
		return parent.TraceID().String()
	}
	if t == nil {
		return ""
	}
	return own(task).String()
}

// parse is what a traceparent says; not valid where it is none.
func parse(traceparent string) api.SpanContext {
	if traceparent == "" {
		return api.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{header: traceparent})
	return api.SpanContextFromContext(ctx)
}

// within is ctx with the span of a traceparent, if it is one.
func within(ctx context.Context, traceparent string) context.Context {
	if parent := parse(traceparent); parent.IsValid() {
		return api.ContextWithRemoteSpanContext(ctx, parent)
	}
	return ctx
}

// own is the trace of a task that was submitted without one: the same for all its
// attempts, on all hosts. Its bits are to look like chance, because samplers go by
// them, and those of a task's id do not.
func own(task store.ID) (id api.TraceID) {
	sum := sha256.Sum256(append([]byte("trace of task "), task[:]...))
	copy(id[:], sum[:])
	return id
}

// taskKey is the key of the task in the context of a span that has no parent.
type taskKey struct{}

// ids makes the ids of spans, and those of traces that begin here.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (api.TraceID, api.SpanID) {
	var id api.TraceID
	if task, ok := ctx.Value(taskKey{}).(store.ID); ok {
		id = own(task)
	}
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id, ids{}.NewSpanID(ctx, id)
}

func (ids) NewSpanID(context.Context, api.TraceID) (id api.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
