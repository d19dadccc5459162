package trace

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

func makeClip(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		t.Skip("there is no ffmpeg here")
	}
	file := filepath.Join(t.TempDir(), "clip.mp4")
	words := "-nostdin -v error -f lavfi -i sine=d=2 -f lavfi -i testsrc2=s=160x120:r=10:d=2 -c:v libx264 " +
		"-preset ultrafast -pix_fmt yuv420p"
	if out, err := exec.Command("ffmpeg", append(strings.Fields(words), file)...).CombinedOutput(); err != nil {
		t.Fatalf("make clip: %v: %s", err, out)
	}
	return file
}

// work runs the pipeline until the task has ended.
func work(t *testing.T, tracer *Tracer, submission store.Submission) {
	t.Helper()
	config := video.Config{
		DataDir: t.TempDir(), PublishDir: t.TempDir(), Reserve: -1, Tools: video.Tools{Preset: "ultrafast", Threads: 1},
	}
	pipeline, err := video.Pipeline(tracer.Stages(video.Stages(config))...)
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers))
	st := store.New(pool, pipeline.Graph())
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	got, err := st.Submit(ctx, submission)
	if err != nil {
		t.Fatal(err)
	}
	runner := stages.Runner{Pool: pool, Pipeline: pipeline, SweepInterval: time.Second, Observe: func(e stages.Event) {
		if e.Kind == stages.StageDead || e.Kind == stages.StageCompleted && e.Stage == "publish" {
			cancel()
		}
	}}
	if err := runner.Run(ctx); err != nil {
		t.Fatal(err)
	}
	task, err := st.Get(t.Context(), got.ID)
	if err != nil || !task.IsFinished(pipeline.Graph()) || context.Cause(ctx) != context.Canceled {
		t.Fatalf("%+v, %v, %v", task, err, context.Cause(ctx))
	}
}

func TestVideo_IsOneTraceFromSubmissionToFFmpeg(t *testing.T) {
	t.Parallel()
	clip := makeClip(t)
	tracer, kept := remembering(t)
	ctx, done := tracer.Submit(t.Context(), parent)
	done(nil)
	work(t, tracer, store.Submission{Source: clip, Traceparent: Traceparent(ctx)})

	spans := kept.GetSpans()
	byID := make(map[string]tracetest.SpanStub)
	count := make(map[string]int)
	for _, s := range spans {
		byID[s.SpanContext.SpanID().String()] = s
		count[s.Name]++
		if s.SpanContext.TraceID().String() != parentTrace {
			t.Errorf("%s is in another trace", s.Name)
		}
		if s.EndTime.Before(s.StartTime) || s.EndTime.IsZero() {
			t.Errorf("span %s lasts from %s to %s", s.Name, s.StartTime, s.EndTime)
		}
	}
	_, submitted := FromContext(ctx)
	purposes := make(map[string]string) // with the attempts
	for _, s := range spans {
		above := byID[s.Parent.SpanID().String()]
		switch s.Name {
		case "submit":
		case "ffmpeg", "ffprobe":
			got := values(s)
			purposes[got["purpose"]] += above.Name
			if got["process.exit.code"] != "0" || got["cpu_s"] == "" || above.StartTime.After(s.StartTime) ||
				above.EndTime.Before(s.EndTime) {
				t.Errorf("%s below %s: %v", s.Name, above.Name, got)
			}
			// The last frame lasts 0.1 s, which ffmpeg 7 leaves out.
			media, err := strconv.ParseFloat(got["media_s"], 64)
			if got["purpose"] == "transcode" &&
				(got["speed"] == "" || got["frames"] != "20" || err != nil || media < 1.85 || media > 2.15) {
				t.Errorf("transcode: %v", got)
			}
		default:
			if s.Parent.SpanID().String() != submitted || len(s.Links) != 1 {
				t.Errorf("%s is below %q, with %d links", s.Name, above.Name, len(s.Links))
			}
		}
	}
	for _, stage := range []string{"ingest", "transcode", "metadata", "assemble", "publish"} {
		want := 1
		if stage == "transcode" {
			want = 2 // its only part, and the join
		}
		if n := count[stage+" attempt"]; n != want {
			t.Errorf("%d attempts of %s", n, stage)
		}
	}
	if purposes["transcode"] != "transcode attempt" || purposes["streams"] == "" || purposes["poster"] == "" {
		t.Errorf("children %v", purposes)
	}
}

func TestVideo_FailureIsInTheTrace(t *testing.T) {
	t.Parallel()
	makeClip(t) // skips the test without ffmpeg
	tracer, kept := remembering(t)
	work(t, tracer, store.Submission{Source: "/nowhere/at/all.mp4"})
	spans := kept.GetSpans()
	if len(spans) != 1 {
		t.Fatalf("%d spans", len(spans))
	}
	got := values(spans[0])
	if got["outcome"] != "failed" || got["error.type"] != "permanent" || spans[0].Status.Description == "" {
		t.Errorf("got %v, %v", got, spans[0].Status)
	}
}
