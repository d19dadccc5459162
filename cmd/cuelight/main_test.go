package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cuelight/cuelight/internal/postgres"
)

// program is the name under which the test binary, which is in PATH, is the program.
const program = "cuelight"

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == program {
		main()
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "cuelight-program-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	self, err1 := os.Executable()
	binary, err2 := os.ReadFile(self)
	err3 := os.WriteFile(filepath.Join(dir, program), binary, 0o755)
	err4 := os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		panic(err)
	}
	return m.Run()
}

// needPrograms skips a test on a machine without PostgreSQL or ffmpeg, unless
// it is meant to have both.
func needPrograms(t *testing.T) {
	t.Helper()
	_, noPostgres := postgres.Find()
	_, noFFmpeg := exec.LookPath("ffmpeg")
	err := errors.Join(noPostgres, noFFmpeg)
	if err == nil {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skipf("this test needs PostgreSQL and ffmpeg: %v", err)
}

// tempDir is t.TempDir for a private server, which as root is another user's
// and must be able to enter.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cuelight-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// With the race detector, a program would otherwise wait a second at its end.
const raceName, raceValue = "GORACE", "atexit_sleep_ms=10"

// sample is a second of video, made once.
var sample = sync.OnceValues(func() ([]byte, error) {
	return exec.Command("ffmpeg", "-v", "error",
		"-f", "lavfi", "-i", "testsrc2=size=128x96:rate=10", "-f", "lavfi", "-i", "sine", "-t", "1",
		"-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac",
		"-movflags", "frag_keyframe+empty_moov", "-f", "mp4", "-").Output()
})
