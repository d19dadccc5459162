// Package trace makes one trace of a video: from the request that submitted it,
// by way of the task's row, to the last ffmpeg, on whatever host that ran. It
// speaks OpenTelemetry, and is off unless the usual environment says where to
// send spans to.
//
//	tracer, err := trace.Start(ctx, trace.Options{Service: "cuelight", Version: version})
//	…
//	pipeline, err := stages.New(name, tracer.Stages(video.Stages(config))...)
//	…
//	err = tracer.Shutdown(ctx) // within a deadline
//
// Who submits puts [Traceparent] of a context into the [store.Submission]: one
// that [Tracer.Submit] returned, or that of a request which came through
// [Tracer.Handler].
//
// # What it promises
//
//   - Off, it starts nothing and costs nothing: a nil *Tracer has all methods,
//     and hands back what it was given. What the caller said of its own trace
//     still gets into the row, for the hosts that trace.
//   - On, it holds nobody up. Spans wait in a queue of bounded length, and are
//     dropped where that is full.
//   - There is nothing global: no provider, no propagator, no handler of errors.
//     Who is within a span finds it, and who made it, in the context.
//
// # What a trace has in it
//
// A span for each attempt of a stage, of kind consumer, whose parent is the
// submitter's, to which it also has a link. It has the attributes task_id, stage,
// attempt and outcome, error.type where it did not complete, and the
// error as its status where it failed. Below it is one for each ffmpeg and
// ffprobe. The attempts of a task that was submitted without a trace share one
// all the same, whose id follows from the task's; see [Tracer.ID].
//
// # What it does not do
//
// It does not speak gRPC, sends neither metrics nor logs, keeps no tracestate,
// and makes no spans of requests that only read.
package trace
