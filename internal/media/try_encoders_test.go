package media

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestTryEncoders_ListsThoseThatEncode(t *testing.T) {
	t.Parallel()
	real, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Skip("there is no ffmpeg here")
	}
	// This ffmpeg has h264_nvenc, with a device, and its libx264 is broken.
	script := filepath.Join(t.TempDir(), "ffmpeg")
	text := "#!/bin/sh\ncase $* in *h264_nvenc*) exit 0;; *libx264*) exit 1;; esac\nexec '" + real + "' \"$@\"\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	real264, err := Tools{}.TryEncoders(t.Context())
	if err != nil || !slices.Contains(real264, "libx264") {
		t.Errorf("the encoders are %v, %v", real264, err)
	}
	works, err := Tools{FFmpeg: script, Sandbox: SandboxOff}.TryEncoders(t.Context())
	if err != nil || !slices.Contains(works, "h264_nvenc") || slices.Contains(works, "libx264") {
		t.Errorf("the encoders are %v, %v", works, err)
	}
}

func TestTryEncoders_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stopping")
	cancel(why)
	if _, err := (Tools{}).TryEncoders(ctx); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}
