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

// scope is the name of the instrumentation.
const scope = "github.com/cuelight/cuelight"

// Options configure a [Tracer]. The zero value is usable.
type Options struct {
	// Version is the version of this program. Default: none.
	Version string
	// Report is called with the error when sending starts to fail, and with nil when
	// it works again. It must not block. It is called by one goroutine at a time, and
	// not after Shutdown. Default: no call.
	Report func(err error)
}

// Tracer creates spans and sends them. A nil Tracer creates none. Its methods may be called
// from several goroutines.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   api.Tracer
	client   *client
}

// Start starts tracing if OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or
// OTEL_EXPORTER_OTLP_ENDPOINT is set, OTEL_TRACES_EXPORTER is not none, and
// OTEL_SDK_DISABLED is not true. Otherwise it returns nil, a Tracer that is off.
//
// It supports the further OTEL_EXPORTER_OTLP_* of HTTP (HEADERS, TIMEOUT, COMPRESSION,
// CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY), OTEL_SERVICE_NAME,
// OTEL_RESOURCE_ATTRIBUTES, OTEL_TRACES_SAMPLER with its ARG, OTEL_BSP_* and
// OTEL_SPAN_*, with the defaults of the specification. An error names the invalid variable,
// without its value if that may be a secret; the Tracer is then nil, so that work can
// continue without it.
//
// Start does not connect to the collector.
func Start(ctx context.Context, o Options) (*Tracer, error) {
	s, on, err := readSettings(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", err)
	}
	if !on {
		return nil, nil
	}
	res, err := o.resource(ctx)
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", err)
	}
	c := newClient(s, o.Report)
	exporter, err := otlptrace.New(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", err)
	}
	t := newTracer(o.Version, sdk.WithResource(res), sdk.WithBatcher(exporter))
	t.client = c
	return t, nil
}

func newTracer(version string, options ...sdk.TracerProviderOption) *Tracer {
	provider := sdk.NewTracerProvider(append(options, sdk.WithIDGenerator(ids{}))...)
	return &Tracer{provider: provider, tracer: provider.Tracer(scope, api.WithInstrumentationVersion(version))}
}

// resource describes this process in all spans. The environment overrides it.
func (o Options) resource(ctx context.Context) (*resource.Resource, error) {
	attributes := []attribute.KeyValue{
		attribute.String("service.name", "cuelight"),
		attribute.Int("process.pid", os.Getpid()),
	}
	if o.Version != "" {
		attributes = append(attributes, attribute.String("service.version", o.Version))
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithAttributes(attributes...), resource.WithFromEnv())
}

// Shutdown sends the remaining spans, without retries, and stops the Tracer. When ctx is
// done it drops the rest; an error reports dropped spans. No goroutine of the Tracer remains,
// and spans that end later are ignored.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	ended := make(chan error, 1)
	if t.client != nil {
		t.client.stopRetrying()
	}
	// With a ctx that ends, the provider would return and leave its goroutine running.
	// So the client is aborted instead.
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
