package trace

import (
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// remembering returns a Tracer that keeps its spans in memory.
func remembering(t testing.TB) (*Tracer, *tracetest.InMemoryExporter) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	tracer := newTracer("v1", sdk.WithSyncer(kept))
	t.Cleanup(func() {
		if err := tracer.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
	return tracer, kept
}

// values returns a span's attributes as text.
func values(s tracetest.SpanStub) map[string]string {
	all := make(map[string]string)
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}
