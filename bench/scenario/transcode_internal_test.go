package scenario

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestFFmpegRecorder_RecordsOneTranscode(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ffmpeg"); err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "it's $HOME") // a path that a shell must quote
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script, recorded, err := newFFmpegRecorder(dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = exec.Command(script, "-version").Run()
	if args, err := takeCommand(recorded); err == nil {
		t.Errorf("%q was recorded, which is no transcode", args)
	}
	want := []string{"-nostdin", "-i", "no such file", "-f", "hls", "a b"}
	_ = exec.Command(script, want...).Run() // it fails, and is recorded
	if got, err := takeCommand(recorded); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for range 2 {
		_ = exec.Command(script, want...).Run()
	}
	if got, err := takeCommand(recorded); err == nil {
		t.Errorf("two commands were taken as %q", got)
	}
}

func TestWithSoundOf_ReplacesPipes(t *testing.T) {
	t.Parallel()
	command := []string{"-i", "file:/a", "-f", "s16le", "-ar", "48000", "-ac", "2", "-i", "pipe:3", "-map", "1:0", "-f", "hls", "b"}
	want := []string{"-i", "file:/a", "-i", "file:/c", "-map", "1:0", "-f", "hls", "b"}
	if got := withSoundOf(command, "file:/c"); !slices.Equal(got, want) || command[9] != "pipe:3" {
		t.Errorf("%q, want %q", got, want)
	}
}
