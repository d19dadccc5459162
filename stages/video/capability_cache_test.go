package video

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// This test is not parallel: a script cannot be executed while a fork of another test
// still has it open for writing.
func TestStages_QueryCapabilitiesOnce(t *testing.T) {
	h := newHarness(t, clips.picture)
	ffmpeg, err := exec.LookPath("ffmpeg")
	if err != nil {
		t.Fatal(err)
	}
	asked := filepath.Join(t.TempDir(), "asked")
	h.Tools.FFmpeg = filepath.Join(t.TempDir(), "ffmpeg")
	h.Tools.Sandbox = "off" // it writes outside its directory
	script := "#!/bin/sh\ncase \" $* \" in *' -version '*) echo >> '" + asked + "';; esac\nexec '" + ffmpeg + "' \"$@\"\n"
	if err := os.WriteFile(h.Tools.FFmpeg, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	results := make(map[string]json.RawMessage)
	h.job.Results = func(_ context.Context, stage string) (json.RawMessage, error) { return results[stage], nil }
	for _, stage := range Stages(h.Config)[:3] { // ingest, transcode, metadata
		result := must(t)(do(t.Context(), stage, h.job))
		if results[stage.Name], err = json.Marshal(result); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n != 1 {
		t.Errorf("its version was queried %d times", n)
	}
}
