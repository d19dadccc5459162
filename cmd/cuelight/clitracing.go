package main

import (
	"context"
	"fmt"

	"github.com/cuelight/cuelight/internal/trace"
)

// startTracing is for commands that end by themselves.
func (c *cli) startTracing(ctx context.Context) (t *trace.Tracer, stop func()) {
	return startTracing(ctx, c.sig.abort, nil, func(what string, err error) {
		fmt.Fprintf(c.err, "cuelight: warning: %s: %s\n", what, err)
	})
}

// submitting begins to submit within the trace of whoever called this, as tools hand
// it on. The Traceparent is for what is submitted; done is to be told what became
// of it.
func (c *cli) submitting(ctx context.Context, t *trace.Tracer) (traceparent string, done func(error)) {
	ctx, done = t.Submit(ctx, c.Env.Get("TRACEPARENT"))
	return trace.Traceparent(ctx), done
}
