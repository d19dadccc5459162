package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/trace"
)

// traceFlushTimeout is how long the shutdown waits for the last traces to be sent.
const traceFlushTimeout = 5 * time.Second

// StartTracing starts tracing if the environment configures it; otherwise the Tracer
// does nothing. The function it returns must be called: it sends the traces that are
// left, until abort is closed. The tracer reports errors of sending, and their end, to
// report; warn is called for errors at the start and at the end.
func StartTracing(
	ctx context.Context, version string, abort <-chan struct{}, report func(error), warn func(what string, err error),
) (t *trace.Tracer, flush func()) {
	t, err := trace.Start(ctx, trace.Options{Version: version, Report: report})
	if err != nil {
		warn("not tracing", err)
	}
	return t, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlushTimeout)
		var watch sync.WaitGroup
		defer watch.Wait()
		defer cancel()
		watch.Go(func() {
			select {
			case <-abort:
				cancel()
			case <-ctx.Done():
			}
		})
		if err := t.Shutdown(ctx); err != nil {
			warn("traces were not sent", err)
		}
	}
}
