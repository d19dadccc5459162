package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/postgres"
)

func TestMain(m *testing.M) {
	// The test binary is also the program, under this name and in PATH.
	testscript.Main(m, map[string]func(){"cuelight": main})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	needPrograms(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		WorkdirRoot:         tempDir(t),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(e *testscript.Env) error { return setUpScript(t, e) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":  codeCommand,
			"json":  jsonCommand,
			"keys":  keysCommand,
			"setid": setIDCommand,
		},
	})
}

// needPrograms skips a test on a machine without PostgreSQL or ffmpeg, unless
// it is meant to have both.
func needPrograms(t *testing.T) {
	t.Helper()
	_, noPostgres := postgres.Find("")
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

func setUpScript(t *testing.T, e *testscript.Env) error {
	e.Setenv("CUELIGHT_DATA_DIR", filepath.Join(e.WorkDir, "data"))
	e.Setenv("LANG", "C.UTF-8")
	e.Setenv(raceName, raceValue)
	for _, name := range []string{"CUELIGHT_PG_BIN"} {
		e.Setenv(name, os.Getenv(name))
	}
	// A database without tables, on a server that was there before.
	foreign := pgtest.New(t, pgtest.Schema{}).Config().ConnString()
	e.Setenv("FOREIGN", foreign)
	address, err := url.Parse(foreign)
	if err != nil {
		return err
	}
	address.Path = "/nowhere"
	e.Setenv("ABSENT", address.String())
	video, err := sample()
	if err != nil {
		return fmt.Errorf("make clip: %w", err)
	}
	// Names that a script cannot write.
	for _, name := range []string{"clip.mp4", "-dash.mp4", "new\nline 'q' \"p\" %41 &<b>.mp4", "latin1-\xe9.mp4"} {
		if err := os.WriteFile(filepath.Join(e.WorkDir, name), video, 0o644); err != nil {
			return err
		}
	}
	e.Setenv("ODD", "new\nline 'q' \"p\" %41 &<b>.mp4")
	e.Setenv("LATIN", "latin1-\xe9.mp4")
	return nil
}

// codeCommand is `code N program args…`: exec with the exit code expected.
func codeCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N program args...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if want := args[0]; strconv.Itoa(got) != want {
		ts.Fatalf("exit code %d, want %s", got, want)
	}
}

// objects are the JSON objects on the last command's standard output, which
// must hold nothing else, one per line.
func objects(ts *testscript.TestScript) []map[string]any {
	var all []map[string]any
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			ts.Fatalf("%q is not a JSON object: %v", line, err)
		}
		all = append(all, object)
	}
	return all
}

// where finds the object that has a member with a value.
func where(ts *testscript.TestScript, member, value string) map[string]any {
	for _, object := range objects(ts) {
		if fmt.Sprint(object[member]) == value {
			return object
		}
	}
	ts.Fatalf("there is no object with %s %q", member, value)
	return nil
}

// jsonCommand is `json MEMBER=VALUE path want`: it finds the object that has the
// member and compares the value at the path with want.
func jsonCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: json member=value path want")
	}
	member, value, _ := strings.Cut(args[0], "=")
	var at any = where(ts, member, value)
	for name := range strings.SplitSeq(args[1], ".") {
		switch v := at.(type) {
		case map[string]any:
			inner, ok := v[name]
			if !ok {
				ts.Fatalf("no %s in %v", name, v)
			}
			at = inner
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(v) {
				ts.Fatalf("no %s in %v", name, v)
			}
			at = v[i]
		default:
			ts.Fatalf("no %s in %v", name, v)
		}
	}
	got := fmt.Sprint(at)
	if at == nil {
		got = "null"
	}
	if (got == args[2]) == neg {
		ts.Fatalf("%s is %q, want %q (negated: %v)", args[1], got, args[2], neg)
	}
}

// keysCommand is `keys N a b c`: there are N objects with exactly these
// members, and of the members all stages.
func keysCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: keys N member...")
	}
	all := objects(ts)
	if strconv.Itoa(len(all)) != args[0] {
		ts.Fatalf("%d objects, want %s", len(all), args[0])
	}
	want := slices.Sorted(slices.Values(args[1:]))
	for _, object := range all {
		if got := slices.Sorted(maps.Keys(object)); !slices.Equal(got, want) {
			ts.Fatalf("members are %v, want %v", got, want)
		}
	}
}

// setIDCommand is `setid VARIABLE member=value`: the task's id.
func setIDCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setid VARIABLE member=value")
	}
	member, value, _ := strings.Cut(args[1], "=")
	id := fmt.Sprint(where(ts, member, value)["task_id"])
	ts.Setenv(args[0], id)
	ts.Setenv(args[0]+"_TAIL", id[len(id)-8:])
}
