package media

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// recordSpans runs children within a span and returns their spans.
func recordSpans(t *testing.T, run func(ctx context.Context)) tracetest.SpanStubs {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(kept))
	ctx, span := provider.Tracer("test").Start(t.Context(), "attempt")
	run(ctx)
	spans := kept.GetSpans()
	for _, s := range spans {
		if s.Parent.SpanID() != span.SpanContext().SpanID() {
			t.Errorf("%s is below %v", s.Name, s.Parent)
		}
	}
	span.End()
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	return spans
}

func textOf(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

func TestSpan_RecordsHowChildEnded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, key, value, says string }{
		{"exit 0", "process.exit.code", "0", ""},
		{"echo secret.mp4: no good >&2; exit 3", "process.exit.code", "3", "source: no good"},
		{"kill -SEGV $$", "signal", "segmentation fault", "segmentation fault"},
	} {
		spans := recordSpans(t, func(ctx context.Context) {
			_, _ = Tools{FFmpeg: script(t, tt.text+"\n")}.run(ctx, command{
				tool: "ffmpeg", purpose: "test", source: "secret.mp4",
			})
		})
		if len(spans) != 1 {
			t.Fatalf("%d spans", len(spans))
		}
		s := spans[0]
		if s.Name != "ffmpeg" || textOf(s, "purpose") != "test" || textOf(s, tt.key) != tt.value {
			t.Errorf("%s: got %s, %v", tt.text, s.Name, s.Attributes)
		}
		if bad := s.Status.Code == codes.Error; bad != (tt.says != "") || !strings.Contains(s.Status.Description, tt.says) {
			t.Errorf("%s: status %v", tt.text, s.Status)
		}
	}
}

func TestSpan_RecordsPositionAndSpeed(t *testing.T) {
	t.Parallel()
	spans := recordSpans(t, func(ctx context.Context) {
		began := time.Now()
		reader := newProgressReader(10, nil, func() time.Time { return began })
		began = began.Add(2 * time.Second)
		tools := Tools{FFmpeg: script(t, "echo frame=70; echo out_time_us=7000000; echo progress=end\n")}
		if _, err := tools.run(ctx, command{tool: "ffmpeg", stdout: reader}); err != nil {
			t.Error(err)
		}
	})
	for key, want := range map[string]string{"media_s": "7", "speed": "3.5", "frames": "70"} {
		if got := textOf(spans[0], key); got != want {
			t.Errorf("%s is %q, want %s", key, got, want)
		}
	}
}

func TestSpan_RecordsCauseOfCancellation(t *testing.T) {
	t.Parallel()
	spans := recordSpans(t, func(ctx context.Context) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		dir, tools := t.TempDir(), Tools{FFmpeg: script(t, ignoresSignals)}
		ended := make(chan error, 1)
		go func() {
			_, err := tools.run(ctx, command{tool: "ffmpeg", dir: dir})
			ended <- err
		}()
		waitForPid(t, dir, "self.pid")
		cancel(errors.New("lease lost"))
		if err := <-ended; err == nil {
			t.Error("it was not stopped")
		}
	})
	s := spans[0]
	if s.Status.Code != codes.Error || !strings.Contains(s.Status.Description, "lease lost") ||
		textOf(s, "process.exit.code") != "" {
		t.Errorf("got %v, %v", s.Status, s.Attributes)
	}
}

// This test is not parallel, because it counts allocations.
func TestSpan_CostsNothingWithoutRecording(t *testing.T) {
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))
	defer func() { _ = provider.Shutdown(t.Context()) }()
	unsampled, span := provider.Tracer("test").Start(t.Context(), "attempt")
	defer span.End()
	for name, ctx := range map[string]context.Context{
		"no span":      t.Context(),
		"a caller's":   trace.ContextWithRemoteSpanContext(t.Context(), span.SpanContext()),
		"not recorded": unsampled,
	} {
		c := command{tool: "ffmpeg", stdout: newProgressReader(10, nil, time.Now)}
		n := testing.AllocsPerRun(100, func() {
			within, span := c.startSpan(ctx)
			if within != ctx || span != nil {
				t.Errorf("%s: there is a span", name)
			}
			c.endSpan(span, stderrReport{}, nil)
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkSpanWithoutRecording(b *testing.B) {
	c := command{tool: "ffmpeg"}
	ctx := b.Context()
	for b.Loop() {
		_, span := c.startSpan(ctx)
		c.endSpan(span, stderrReport{}, nil)
	}
}
