package video

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"go.uber.org/goleak"
)

// clips are made once for all tests; empty if ffmpeg is not installed.
var clips struct{ picture, sound string }

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "cuelight-clips-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		if err := makeClips(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		prototype = sync.OnceValue(func() prototypeResult { return makePrototype(dir) })
		code := m.Run()
		if err := goleak.Find(); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

func makeClips(dir string) error {
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		return nil
	}
	clips.picture = filepath.Join(dir, "picture.mp4")
	clips.sound = filepath.Join(dir, "sound.m4a")
	sine := []string{"-f", "lavfi", "-i", "sine=d=3"}
	for file, args := range map[string][]string{
		clips.picture: append(sine, "-f", "lavfi", "-i", "testsrc2=s=320x240:r=10:d=3",
			"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p"),
		clips.sound: sine,
	} {
		args = append([]string{"-nostdin", "-v", "error"}, append(args, file)...)
		if out, err := exec.Command("ffmpeg", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("make clip: %w: %s", err, out)
		}
	}
	return nil
}

// testTools transcode quickly. They query what ffmpeg supports once for all tests, which takes longer than many of the
// transcodes.
var testTools = Tools{Preset: "ultrafast", Threads: 1, Cache: new(media.CapabilityCache)}

// harness is a pipeline without an engine: a test calls the stages itself.
type harness struct {
	t *testing.T
	Config
	job *stages.Job
}

func newHarness(t *testing.T, source string) *harness {
	t.Helper()
	if clips.picture == "" {
		t.Skip("there is no ffmpeg here")
	}
	return &harness{
		t:      t,
		Config: Config{DataDir: t.TempDir(), PublishDir: t.TempDir(), Tools: testTools},
		job:    &stages.Job{Task: store.ID{15: 7}, Source: source, Attempt: 1},
	}
}

func (h *harness) mustIngest() Ingest {
	h.t.Helper()
	return must(h.t)(h.ingest(h.t.Context(), h.job)).(Ingest)
}

func (h *harness) mustTranscode(in Ingest) Transcode {
	h.t.Helper()
	return must(h.t)(h.transcode(h.t.Context(), h.job, in, chunkSpec{})).(Transcode)
}

func (h *harness) mustMetadata(in Ingest) Metadata {
	h.t.Helper()
	return must(h.t)(h.metadata(h.t.Context(), h.job, in)).(Metadata)
}

// allResults are the results of all stages before publish.
type allResults struct {
	in Ingest
	tr Transcode
	md Metadata
	as Assemble
}

func (h *harness) mustMake() allResults {
	h.t.Helper()
	var m allResults
	m.in = h.mustIngest()
	m.tr = h.mustTranscode(m.in)
	m.md = h.mustMetadata(m.in)
	m.as = must(h.t)(h.assemble(h.t.Context(), h.job, m.in, m.tr, m.md)).(Assemble)
	return m
}

// readyHarness returns a new harness with the results of mustMake for the picture. They
// are made once and hard-linked: a test that damages a file must remove it first.
func readyHarness(t *testing.T) (*harness, allResults) {
	t.Helper()
	h := newHarness(t, clips.picture)
	p := prototype()
	if p.err != nil {
		t.Fatal(p.err)
	}
	dir, err := h.makeTaskDir(h.job.Task)
	if err != nil {
		t.Fatal(err)
	}
	var l linker
	if err := l.add(t.Context(), p.dir, dir, servedMode); err != nil {
		t.Fatal(err)
	}
	return h, p.allResults
}

type prototypeResult struct {
	dir string
	allResults
	err error
}

// prototype is set by TestMain and makes its video on the first call.
var prototype func() prototypeResult

func makePrototype(dir string) prototypeResult {
	h := harness{
		Config: Config{DataDir: dir, Tools: testTools},
		job:    &stages.Job{Task: store.ID{15: 7}, Source: clips.picture},
	}
	ctx := context.Background()
	p := prototypeResult{dir: h.TaskDir(h.job.Task)}
	steps := []func() error{
		func() (err error) { p.in, err = h.ingest(ctx, h.job); return err },
		func() (err error) { p.tr, err = h.transcode(ctx, h.job, p.in, chunkSpec{}); return err },
		func() (err error) { p.md, err = h.metadata(ctx, h.job, p.in); return err },
		func() (err error) { p.as, err = h.assemble(ctx, h.job, p.in, p.tr, p.md); return err },
	}
	for _, step := range steps {
		if p.err = step(); p.err != nil {
			break
		}
	}
	return p
}

func (h *harness) tryPublish(m allResults) (Publish, error) {
	return h.publish(h.t.Context(), h.job, m.in, m.tr, m.md, m.as)
}

func (h *harness) mustPublish(m allResults) Publish {
	h.t.Helper()
	return must(h.t)(h.tryPublish(m)).(Publish)
}

// must returns the result of a stage after a round trip through JSON, as in the
// engine.
func must(t *testing.T) func(result any, err error) any {
	t.Helper()
	return func(result any, err error) any {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		back := reflect.New(reflect.TypeOf(result))
		if err := json.Unmarshal(raw, back.Interface()); err != nil {
			t.Fatal(err)
		}
		return back.Elem().Interface()
	}
}

// settle returns the error that the engine would record.
func settle(err error) error { return classify(context.Background(), err, 1) }

func wantPermanent(t *testing.T, what string, err error) {
	t.Helper()
	if err := settle(err); err == nil || !stages.IsPermanent(err) {
		t.Errorf("%s: got %v, want a permanent error", what, err)
	}
}

func wantRetry(t *testing.T, what string, err error) {
	t.Helper()
	if err := settle(err); err == nil || stages.IsPermanent(err) {
		t.Errorf("%s: got %v, want an error that is not permanent", what, err)
	}
}

// wantPlayable decodes all renditions of a playlist and requires no errors.
func wantPlayable(t *testing.T, playlist string, renditions []media.Rendition) {
	t.Helper()
	for i := range renditions {
		out, err := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-i", playlist,
			"-map", fmt.Sprintf("0:%d", i), "-f", "null", "-").CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("play %s: %v: %s", playlist, err, out)
		}
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return os.SameFile(x, y)
}

// do does a stage as the engine does: it divides the stage, does the parts, and joins them.
func do(ctx context.Context, s stages.Stage, job *stages.Job) (any, error) {
	if s.Divide == nil {
		return s.Work(ctx, job)
	}
	parts, err := s.Divide(ctx, job)
	if err != nil {
		return nil, err
	}
	results := make([]json.RawMessage, len(parts))
	for i, p := range parts {
		part := *job
		part.Part, part.Parts = i+1, len(parts)
		if part.Spec, err = json.Marshal(p.Spec); err != nil {
			return nil, err
		}
		result, err := s.Part(ctx, &part)
		if err != nil {
			return nil, err
		}
		if results[i], err = json.Marshal(result); err != nil {
			return nil, err
		}
	}
	join := *job
	join.Parts, join.OnPartResults = len(parts), func(context.Context) ([]json.RawMessage, error) { return results, nil }
	return s.Work(ctx, &join)
}

// attemptsOfTask is how many attempts a task has that goes through without a failure: one per
// stage, but three of transcode, which is divided, done in one part, and joined.
const attemptsOfTask = 7
