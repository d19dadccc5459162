package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// program is the built cuelight.
var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "cuelight-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "cuelight")
	if out, err := build(program).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// build returns the command that builds the program, with the libraries of the product's go.mod and the flags of `make build`.
func build(file string) *exec.Cmd {
	cmd := exec.Command("go", "build", "-C", "../..", "-trimpath", "-buildvcs=false", "-o", file, "./cmd/cuelight")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}

// outcome is what `cuelight run --json` prints per file.
type outcome struct {
	TaskID    string  `json:"task_id"`
	Source    string  `json:"source"`
	Status    string  `json:"status"`
	Published *string `json:"published"`
	Error     *string `json:"error"`
	Stages    map[string]struct {
		Status     string  `json:"status"`
		Attempts   int     `json:"attempts"`
		DurationMS int64   `json:"duration_ms"`
		Error      *string `json:"error"`
	} `json:"stages"`
}

// environment is a data and a publish directory for one test.
type environment struct {
	t             testing.TB
	data, publish string
}

func newEnvironment(t testing.TB) environment {
	t.Helper()
	needFFmpeg(t)
	// The path of t.TempDir is too long for a socket, and only root may enter it.
	dir, err := os.MkdirTemp("", "cuelight-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return environment{t, filepath.Join(dir, "data"), filepath.Join(dir, "published")}
}

func needFFmpeg(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("ffmpeg"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("ffmpeg is not installed")
		}
		t.Skip("ffmpeg is not installed")
	}
}

// command returns a cuelight command with these directories and the private server.
func (h environment) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	for _, kv := range os.Environ() {
		if !bytes.HasPrefix([]byte(kv), []byte("PG")) {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env,
		"CUELIGHT_DATA_DIR="+h.data, "CUELIGHT_PUBLISH_DIR="+h.publish, "CUELIGHT_DATABASE_URL=private", "CUELIGHT_CONFIG=/dev/null",
		"CUELIGHT_PRESET=ultrafast", "CUELIGHT_NICE=0", "CUELIGHT_RESERVE=0") // the other tests have the normal priority, too
	return cmd
}

// run processes the files and returns the printed outcomes, by source, and the exit code.
func (h environment) run(files ...string) (map[string]outcome, int) {
	h.t.Helper()
	cmd := h.command(append([]string{"run", "--json", "--"}, files...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		h.t.Fatal(err)
	}
	all := make(map[string]outcome)
	lines := json.NewDecoder(&stdout)
	for lines.More() {
		var o outcome
		if err := lines.Decode(&o); err != nil {
			h.t.Fatalf("the output is not JSON: %v\n%s", err, stderr.Bytes())
		}
		all[o.Source] = o
	}
	if len(all) != len(files) {
		h.t.Errorf("%d outcomes for %d files:\n%s", len(all), len(files), stderr.Bytes())
	}
	return all, cmd.ProcessState.ExitCode()
}

// makeClip creates a short video with sound.
func makeClip(t testing.TB, dir string, length time.Duration, size string) string {
	t.Helper()
	file := filepath.Join(dir, "clip.mp4")
	seconds := fmt.Sprint(length.Seconds())
	cmd := exec.Command("ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", "testsrc2=rate=25:size="+size,
		"-f", "lavfi", "-i", "sine", "-t", seconds, "-c:v", "libx264", "-preset", "ultrafast", "-g", "50", "-pix_fmt", "yuv420p",
		"-c:a", "aac", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return file
}
