// Package trace records one trace per video with OpenTelemetry: from the request that
// submits it, through the row of the task, to the last ffmpeg, on any host. It is off
// unless the standard environment variables name a collector.
//
//	tracer, err := trace.Start(ctx, trace.Options{Version: version})
//	…
//	pipeline, err := stages.New(name, tracer.Stages(video.Stages(config))...)
//	…
//	err = tracer.Shutdown(ctx) // within a deadline
//
// A submitter stores the [Traceparent] of a context in the [store.Submission]: that of the
// context from [Tracer.Submit], or of a request that has passed [Tracer.Handler].
//
// # Guarantees
//
//   - Off, it starts nothing and costs nothing: all methods work on a nil *Tracer and
//     return their arguments unchanged. The caller's trace is still stored in the row, for
//     hosts that do trace.
//   - On, it never blocks work. Spans wait in a bounded queue, and are dropped when it is
//     full.
//   - Nothing is global: no provider, no propagator, no error handler. The context carries
//     the span and its tracer.
//
// # Contents of a trace
//
// Each attempt of a stage is a span of kind consumer. Its parent is the submitter's span,
// and it links to it. It has the attributes task_id, stage, attempt and outcome, and
// error.type unless it completed; a failure has the error as its status. Each ffmpeg and
// ffprobe is a child span. The attempts of a task submitted without a trace share a trace
// whose id is derived from the task's; see [Tracer.ID].
//
// # Limits
//
// It does not support gRPC, metrics, logs or tracestate, and creates no spans for requests
// that only read.
package trace
