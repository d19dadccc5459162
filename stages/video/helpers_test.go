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

// clips are made once for all tests; empty where there is no ffmpeg.
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
		prototype = sync.OnceValue(func() prototyped { return makePrototype(dir) })
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

// house is a pipeline without an engine: a test calls its stages in turn.
type house struct {
	t *testing.T
	Config
	job *stages.Job
}

func newHouse(t *testing.T, source string) *house {
	t.Helper()
	if clips.picture == "" {
		t.Skip("there is no ffmpeg here")
	}
	return &house{
		t:      t,
		Config: Config{DataDir: t.TempDir(), PublishDir: t.TempDir(), Tools: Tools{Preset: "ultrafast", Threads: 1}},
		job:    &stages.Job{Task: store.ID{15: 7}, Source: source, Attempt: 1},
	}
}

func (h *house) mustIngest() Ingest {
	h.t.Helper()
	return must(h.t)(h.ingest(h.t.Context(), h.job)).(Ingest)
}

func (h *house) mustTranscode(in Ingest) Transcode {
	h.t.Helper()
	return must(h.t)(h.transcode(h.t.Context(), h.job, in)).(Transcode)
}

func (h *house) mustMetadata(in Ingest) Metadata {
	h.t.Helper()
	return must(h.t)(h.metadata(h.t.Context(), h.job, in)).(Metadata)
}

// made is everything up to publish.
type made struct {
	in Ingest
	tr Transcode
	md Metadata
	as Assemble
}

func (h *house) mustMake() made {
	h.t.Helper()
	var m made
	m.in = h.mustIngest()
	m.tr = h.mustTranscode(m.in)
	m.md = h.mustMetadata(m.in)
	m.as = must(h.t)(h.assemble(h.t.Context(), h.job, m.in, m.tr, m.md)).(Assemble)
	return m
}

// ready is what mustMake makes of the picture, in a house of its own. It is
// made once and hard-linked: a test that damages a file must remove it first.
func ready(t *testing.T) (*house, made) {
	t.Helper()
	h := newHouse(t, clips.picture)
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
	return h, p.made
}

type prototyped struct {
	dir string
	made
	err error
}

// prototype is set by TestMain and makes its video when it is first called.
var prototype func() prototyped

func makePrototype(dir string) prototyped {
	h := house{
		Config: Config{DataDir: dir, Tools: Tools{Preset: "ultrafast", Threads: 1}},
		job:    &stages.Job{Task: store.ID{15: 7}, Source: clips.picture},
	}
	ctx := context.Background()
	p := prototyped{dir: h.TaskDir(h.job.Task)}
	steps := []func() error{
		func() (err error) { p.in, err = h.ingest(ctx, h.job); return err },
		func() (err error) { p.tr, err = h.transcode(ctx, h.job, p.in); return err },
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

func (h *house) tryPublish(m made) (Publish, error) {
	return h.publish(h.t.Context(), h.job, m.in, m.tr, m.md, m.as)
}

func (h *house) mustPublish(m made) Publish {
	h.t.Helper()
	return must(h.t)(h.tryPublish(m)).(Publish)
}

// must returns what a stage returned, after the journey through JSON that the
// engine sends it on.
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

// settle is what the engine would be told of an error.
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

// wantPlayable decodes all of a playlist's renditions and wants no complaint.
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
