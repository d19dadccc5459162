package main

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/trace"
)

// startTracing starts tracing for a command that exits by itself.
func (c *cli) startTracing(ctx context.Context) (t *trace.Tracer, flush func()) {
	return daemon.StartTracing(ctx, programVersion(), c.sig.Abort, nil, func(what string, err error) {
		fmt.Fprintf(c.err, "cuelight: warning: %s: %s\n", what, err)
	})
}

// traceSubmission begins a span in the trace of the calling program, which passes it in
// TRACEPARENT. The traceparent returned is for the tasks; done ends the span.
func (c *cli) traceSubmission(ctx context.Context, t *trace.Tracer) (traceparent string, done func(error)) {
	ctx, done = t.Submit(ctx, c.Env.Get("TRACEPARENT"))
	return trace.Traceparent(ctx), done
}
