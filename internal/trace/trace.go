package trace

import (
	"context"
	"fmt"
	"os"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	api "go.opentelemetry.io/otel/trace"
)

// scope names who makes the spans.
const scope = "github.com/cuelight/cuelight"

// Options say what is traced. The zero value is usable.
type Options struct {
	// Service is the name of this program where the environment has no other.
	// Default "cuelight".
	Service string
	// Version is that of this program. Default: not told.
	Version string
	// Report is told when spans cannot be sent any more, with the reason, and
	// with nil when they can again. It must not block; it is called by one
	// goroutine at a time, and not after Shutdown. Default: nobody is.
	Report func(err error)
}

// Tracer makes spans and sends them. A nil Tracer makes none. Its methods may be
// called by any number of goroutines.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   api.Tracer
	client   *client
}

// Start begins to trace where the environment says so: where
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT is set,
// OTEL_TRACES_EXPORTER is not none, and OTEL_SDK_DISABLED is not true. Otherwise
// it returns nil, which is a Tracer that is off.
//
// It heeds the further OTEL_EXPORTER_OTLP_* of HTTP (HEADERS, TIMEOUT, COMPRESSION,
// CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY), OTEL_SERVICE_NAME,
// OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER with its ARG, OTEL_BSP_* and
// OTEL_SPAN_*, all with the defaults of the specification. An error names the
// variable that makes no sense, never its value where that may be a secret; with
// it comes nil, so that work can go on without.
//
// It does not ask whether anybody is there to receive spans.
func Start(ctx context.Context, o Options) (*Tracer, error) {
	s, on, err := settingsOf(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", err)
	}
	if !on {
		return nil, nil
	}
	described, err := o.describe(ctx)
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", err)
	}
	c := newClient(s, o.Report)
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", err)
	}
	t := newTracer(o.Version, sdk.WithResource(described), sdk.WithBatcher(exporter))
	t.client = c
	return t, nil
}

func newTracer(version string, options ...sdk.TracerProviderOption) *Tracer {
	provider := sdk.NewTracerProvider(append(options, sdk.WithIDGenerator(ids{}))...)
	return &Tracer{provider: provider, tracer: provider.Tracer(scope, api.WithInstrumentationVersion(version))}
}

// describe is what is said of this process with all spans. What the environment
// says counts for more.
func (o Options) describe(ctx context.Context) (*resource.Resource, error) {
	if o.Service == "" {
		o.Service = "cuelight"
	}
	known := []attribute.KeyValue{
		attribute.String("service.name", o.Service),
		attribute.Int("process.pid", os.Getpid()),
	}
	if o.Version != "" {
		known = append(known, attribute.String("service.version", o.Version))
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(known...), resource.WithFromEnv())
}

// Shutdown sends what is left and ends. It takes no longer than ctx: whatever has
// not been sent by then is dropped, as is what cannot be sent at the first try,
// and the error says so. Nothing of the Tracer goes on after that. Spans that end
// later go nowhere.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ended := make(chan error, 1)
	if t.client != nil {
		t.client.hurry()
	}
	// The provider would return at the end of a ctx and leave its goroutine
	// behind, so that it is the client that gives up then.
	go func() { ended <- t.provider.Shutdown(context.WithoutCancel(ctx)) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		if t.client != nil {
			t.client.abort(context.Cause(ctx))
		}
		err = <-ended
	}
	if t.client != nil && err == nil {
		err = t.client.close()
	}
	if err != nil {
		return fmt.Errorf("stop tracing: %w", err)
	}
	return nil
}
