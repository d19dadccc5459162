package transcodebench

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/bench/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
)

func TestMain(m *testing.M) {
	RunIfChild()
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// clip generates a second of video and sound, at a path that a shell must quote.
func clip(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(name); err != nil && os.Getenv("CI") == "" {
			t.Skip(err)
		}
	}
	path := filepath.Join(makeDir(t, "it's $HOME"), "clip.mp4")
	out, err := exec.Command("ffmpeg", "-nostdin", "-loglevel", "error",
		"-f", "lavfi", "-i", "testsrc2=s=854x480:r=10:d=1", "-f", "lavfi", "-i", "sine=d=1",
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

func makeDir(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.Mkdir(path, 0o755))
	return path
}

// segmentCounts returns the number of segments below a directory by rendition.
func segmentCounts(t *testing.T, dir string) map[string]int {
	t.Helper()
	files, err := fs.Glob(os.DirFS(dir), "*/seg-*.m4s")
	must(t, err)
	all := map[string]int{}
	for _, f := range files {
		all[filepath.Dir(f)]++
	}
	return all
}

func TestRunCommands_ProducesTheStagesRenditions(t *testing.T) {
	t.Parallel()
	source := clip(t)
	commands, err := RecordCommands(t.Context(), source, makeDir(t, "dry run's"))
	must(t, err)
	if n := len(commands.PerRung); n < 3 { // 480p, 360p and sound at least
		t.Fatalf("%d rungs, want at least 3", n)
	}
	whole, each := makeDir(t, "whole"), makeDir(t, "each")
	cost, err := RunCommands(t.Context(), []Command{commands.Ladder}, whole)
	must(t, err)
	if cost.CPU <= 0 || cost.Wall <= 0 || cost.Memory < 1<<20 {
		t.Errorf("the cost is %+v", cost)
	}
	_, err = RunCommands(t.Context(), commands.PerRung, each)
	must(t, err)
	want := segmentCounts(t, whole)
	if got := segmentCounts(t, each); len(got) != len(commands.PerRung) || len(want) != len(got) {
		t.Errorf("one by one: %v, at once: %v, want %d renditions", got, want, len(commands.PerRung))
	}
	for _, c := range commands.PerRung {
		if n := strings.Count(strings.Join(c, " "), " hls "); n != 1 {
			t.Errorf("a command for one rung makes %d renditions", n)
		}
	}
}

func TestRunStage_ChecksTheFFmpegCommand(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t, pgtest.Schema{}).Config().ConnString()
	must(t, cuelight.System.Setup(t.Context(), url))
	source := clip(t)
	commands, err := RecordCommands(t.Context(), source, makeDir(t, "dry run"))
	must(t, err)
	dir := makeDir(t, "stage's")
	cost, err := RunStage(t.Context(), Job{URL: url, Warmup: source, Source: source, Dir: dir}, commands.Ladder)
	must(t, err)
	if cost.CPU <= 0 || cost.Wall <= 0 || cost.Memory < 1<<20 {
		t.Errorf("the cost is %+v", cost)
	}
	results, err := filepath.Glob(filepath.Join(dir, "data", "tasks", "*", "transcode-*"))
	must(t, err)
	if len(results) != 2 || len(segmentCounts(t, results[1])) != len(commands.PerRung) { // in the order of their ids
		t.Errorf("results are %v", results)
	}

	other := slices.Clone(commands.Ladder)
	other[len(other)-1] += "x"
	_, err = RunStage(t.Context(), Job{URL: url, Warmup: source, Source: source, Dir: makeDir(t, "other")}, other)
	if !errors.Is(err, errUnexpectedCommand) {
		t.Errorf("error for another command is %v", err)
	}
}

func TestMeasurements_RejectSourcesThatAreNotMedia(t *testing.T) {
	t.Parallel()
	clip(t) // skips where there is no ffmpeg
	url := pgtest.New(t, pgtest.Schema{}).Config().ConnString()
	must(t, cuelight.System.Setup(t.Context(), url))
	source := filepath.Join(t.TempDir(), "text.mp4")
	must(t, os.WriteFile(source, []byte("not a video"), 0o644))
	if _, err := RecordCommands(t.Context(), source, makeDir(t, "dry run")); err == nil {
		t.Error("RecordCommands accepted a text file")
	}
	_, err := RunStage(t.Context(), Job{URL: url, Warmup: source, Source: source, Dir: makeDir(t, "stage")}, nil)
	if err == nil || !strings.Contains(err.Error(), "ingest") {
		t.Errorf("error is %v", err)
	}
	_, err = RunCommands(t.Context(), []Command{{"-nostdin", "-i", source, "-f", "null", "-"}}, t.TempDir())
	if err == nil {
		t.Error("ffmpeg accepted a text file")
	}
}

func TestCommand_EqualsIgnoresTheSource(t *testing.T) {
	t.Parallel()
	a := Command{"-y", "-i", "file:/a", "-f", "hls", "file:720p/index.m3u8"}
	b := Command{"-y", "-i", "file:/b", "-f", "hls", "file:720p/index.m3u8"}
	if !a.equalsExceptSource(b) || a[2] != "file:/a" {
		t.Error("commands with different sources are not equal, or changed")
	}
	for _, other := range []Command{nil, a[:5], {"-y", "-i", "file:/a", "-f", "hls", "file:360p/index.m3u8"}} {
		if a.equalsExceptSource(other) {
			t.Errorf("equal to %q", other)
		}
	}
}
