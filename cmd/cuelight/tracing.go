package main

import (
	"context"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/trace"
)

// tracesWithin is how long the end waits for the last traces to be sent.
const tracesWithin = 5 * time.Second

// startTracing begins to trace, where the environment says so; else the Tracer is
// off. The function it returns must be called: it sends what is left, but gives up
// when abort is closed. report is told while it goes on, warn at the beginning and
// at the end.
func startTracing(ctx context.Context, abort <-chan struct{}, report func(error), warn func(what string, err error)) (t *trace.Tracer, stop func()) {
	t, err := trace.Start(ctx, trace.Options{Version: programVersion(), Report: report})
	if err != nil {
		warn("not tracing", err)
	}
	return t, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesWithin)
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
