package trace

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	api "go.opentelemetry.io/otel/trace"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

const (
	parentTrace = "0af7651916cd43dd8448eb211c80319c"
	parentSpan  = "b7ad6b7169203331"
	parent      = "00-" + parentTrace + "-" + parentSpan + "-01"
)

func newJob(traceparent string) *stages.Job {
	return &stages.Job{Task: store.ID{1, 15: 7}, Stage: "transcode", Attempt: 2, Traceparent: traceparent}
}

func nothing(context.Context, *stages.Job) (any, error) { return nil, nil }

func TestWork_SpanIsChildOfTheSubmitterAndLinked(t *testing.T) {
	t.Parallel()
	tracer, kept := remembering(t)
	var trace, span, on string
	_, err := tracer.Work(func(ctx context.Context, _ *stages.Job) (any, error) {
		trace, span = FromContext(ctx)
		on = Traceparent(ctx)
		return nil, nil
	})(t.Context(), newJob(parent))
	if err != nil {
		t.Fatal(err)
	}
	s := kept.GetSpans()[0]
	if s.Name != "transcode attempt" || s.SpanKind != api.SpanKindConsumer || s.InstrumentationScope.Version != "v1" {
		t.Errorf("got %s, %s", s.Name, s.SpanKind)
	}
	if s.SpanContext.TraceID().String() != parentTrace || s.Parent.SpanID().String() != parentSpan ||
		!s.Parent.IsRemote() {
		t.Errorf("the span is in trace %s, below span %s", s.SpanContext.TraceID(), s.Parent.SpanID())
	}
	if len(s.Links) != 1 || s.Links[0].SpanContext.SpanID().String() != parentSpan {
		t.Errorf("links %v", s.Links)
	}
	want := map[string]string{
		"task_id": newJob("").Task.String(), "stage": "transcode", "attempt": "2", "outcome": "completed",
	}
	if got := values(s); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if trace != parentTrace || span != s.SpanContext.SpanID().String() || on != "00-"+trace+"-"+span+"-01" {
		t.Errorf("within the span: trace %s, span %s, traceparent %s", trace, span, on)
	}
	if id := tracer.ID(newJob("").Task, parent); id != parentTrace {
		t.Errorf("trace id for logs: %s", id)
	}
}

func TestWork_AttemptsWithoutASubmittersTraceShareOne(t *testing.T) {
	t.Parallel()
	var traces []string
	for range 2 { // processes
		tracer, kept := remembering(t)
		for range 2 { // attempts
			if _, err := tracer.Work(nothing)(t.Context(), newJob("")); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range kept.GetSpans() {
			if s.Parent.IsValid() || len(s.Links) != 0 {
				t.Errorf("parent %v, links %v", s.Parent, s.Links)
			}
			traces = append(traces, s.SpanContext.TraceID().String())
		}
		traces = append(traces, tracer.ID(newJob("").Task, ""))
	}
	other := newJob("")
	other.Task[0]++
	tracer, kept := remembering(t)
	if _, err := tracer.Work(nothing)(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for _, id := range traces {
		if id != traces[0] {
			t.Errorf("traces %q", traces)
		}
	}
	if kept.GetSpans()[0].SpanContext.TraceID().String() == traces[0] {
		t.Error("another task is in the same trace")
	}
}

// Task ids are UUIDs of version 7, which have fixed bits where samplers expect random ones.
func TestWork_SamplesTheConfiguredShareOfTasks(t *testing.T) {
	t.Parallel()
	for _, ratio := range []float64{0.1, 0.5, 0.9} {
		kept := tracetest.NewInMemoryExporter()
		tracer := newTracer("", sdk.WithSyncer(kept), sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(ratio))))
		const tasks = 2000
		for i := range tasks {
			job := newJob("")
			job.Task = store.ID{6: 0x70, 8: 0x80, 14: byte(i >> 8), 15: byte(i)}
			_, _ = tracer.Work(nothing)(t.Context(), job)
		}
		if got := float64(len(kept.GetSpans())) / tasks; got < ratio-0.05 || got > ratio+0.05 {
			t.Errorf("ratio %v: %v traces", ratio, got)
		}
		if err := tracer.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestWork_FollowsTheSubmittersSampling(t *testing.T) {
	t.Parallel()
	tracer, kept := remembering(t)
	_, _ = tracer.Work(func(ctx context.Context, _ *stages.Job) (any, error) {
		if trace, _ := FromContext(ctx); trace != parentTrace {
			t.Errorf("the trace is %s", trace)
		}
		return nil, nil
	})(t.Context(), newJob(strings.TrimSuffix(parent, "1")+"0"))
	if n := len(kept.GetSpans()); n != 0 {
		t.Errorf("%d spans", n)
	}
}

func TestWork_SpanHasTheOutcome(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, tt := range []struct {
		err, cause            error
		outcome, kind, cause2 string
		bad                   bool
	}{
		{nil, nil, "completed", "", "", false},
		{boom, nil, "failed", "error", "", true},
		{stages.Permanent(boom), nil, "failed", "permanent", "", true},
		{stages.RetryAfter(time.Second, boom), nil, "failed", "retry_after", "", true},
		{stages.Postpone(time.Second, boom), nil, "released", "postponed", "", false},
		{boom, stages.ErrTimeout, "failed", "timeout", "attempt timed out", true},
		{boom, stages.ErrStalled, "failed", "stalled", "attempt made no progress", true},
		{boom, stages.ErrDraining, "released", "draining", "process is stopping", false},
		{boom, fmt.Errorf("%w: by hand", stages.ErrLeaseLost), "released", "lease_lost", "lease lost: by hand", false},
		{boom, errors.New("crowded"), "released", "interrupted", "crowded", false},
	} {
		tracer, kept := remembering(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := tracer.Work(func(context.Context, *stages.Job) (any, error) {
			if tt.cause != nil {
				cancel(tt.cause)
			}
			return nil, tt.err
		})(ctx, newJob(parent))
		cancel(nil)
		if !errors.Is(err, tt.err) {
			t.Errorf("%v became %v", tt.err, err)
		}
		s := kept.GetSpans()[0]
		got := values(s)
		if got["outcome"] != tt.outcome || got["error.type"] != tt.kind || got["cause"] != tt.cause2 {
			t.Errorf("%v, %v: got %v", tt.err, tt.cause, got)
		}
		if bad := s.Status.Code == codes.Error; bad != tt.bad || bad && s.Status.Description != "boom" {
			t.Errorf("%v, %v: status %v", tt.err, tt.cause, s.Status)
		}
	}
}

func TestWork_EndsTheSpanOfAPanic(t *testing.T) {
	t.Parallel()
	tracer, kept := remembering(t)
	func() {
		defer func() {
			if v := recover(); v != "boom" {
				t.Errorf("recovered %v", v)
			}
		}()
		_, _ = tracer.Work(func(context.Context, *stages.Job) (any, error) { panic("boom") })(t.Context(), newJob(""))
	}()
	if s := kept.GetSpans()[0]; values(s)["error.type"] != "panic" || s.Status.Code != codes.Error {
		t.Errorf("got %v, %v", values(s), s.Status)
	}
}

func TestBrief_CutsBetweenCharacters(t *testing.T) {
	t.Parallel()
	got := brief(errors.New(strings.Repeat("ä", 5000) + "\xff"))
	if len(got) > 1100 || strings.ToValidUTF8(got, "") != got {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-10:])
	}
}

func TestStages_AreUnchangedWhileOff(t *testing.T) {
	t.Parallel()
	var off *Tracer
	all := []stages.Stage{{Name: "one", Work: nothing}}
	if got := off.Stages(all); &got[0] != &all[0] {
		t.Error("the stages were copied")
	}
	if off != nil || off.ID(store.ID{1}, "") != "" || off.ID(store.ID{1}, parent) != parentTrace {
		t.Error("tracing is not off")
	}
	if reflect.ValueOf(off.Work(nothing)).Pointer() != reflect.ValueOf(nothing).Pointer() {
		t.Error("Work changed")
	}
	on, _ := remembering(t)
	got := on.Stages(all)
	if &got[0] == &all[0] || reflect.ValueOf(all[0].Work).Pointer() != reflect.ValueOf(nothing).Pointer() {
		t.Error("the given stages changed")
	}
}

// BenchmarkAttempt measures an attempt: with tracing off; on, sent in batches; and on, not
// sampled by the submitter.
func BenchmarkAttempt(b *testing.B) {
	on := newTracer("", sdk.WithBatcher(dropping{}))
	defer func() { _ = on.Shutdown(context.Background()) }()
	for _, tt := range []struct {
		name        string
		tracer      *Tracer
		traceparent string
	}{
		{"off", nil, parent}, {"on", on, parent}, {"on/without", on, ""},
		{"on/unsampled", on, strings.TrimSuffix(parent, "1") + "0"},
	} {
		b.Run(tt.name, func(b *testing.B) {
			work, job := tt.tracer.Work(nothing), newJob(tt.traceparent)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = work(b.Context(), job)
			}
		})
	}
}

// dropping is an exporter that keeps nothing.
type dropping struct{}

// ExportSpans drops the spans.
func (dropping) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return nil }

// Shutdown does nothing.
func (dropping) Shutdown(context.Context) error { return nil }

func TestWork_SpansContainNoSecretOfASource(t *testing.T) {
	t.Parallel()
	tracer, kept := remembering(t)
	job := newJob("")
	job.Source = "s3://key:hunter22@bucket/clip.mp4?X-Amz-Signature=c0ffee123"
	_, err := tracer.Work(func(context.Context, *stages.Job) (any, error) {
		return nil, fmt.Errorf("open %s: refused", job.Source)
	})(t.Context(), job)
	if err == nil {
		t.Fatal("no error")
	}
	if got := kept.GetSpans()[0].Status.Description; got != "open s3://bucket/clip.mp4: refused" {
		t.Errorf("the status of the span is %q", got)
	}
}
