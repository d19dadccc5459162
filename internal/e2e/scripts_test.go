package e2e

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
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cuelight/cuelight/internal/pgtest"
)

func TestCommands_MatchTheirScripts(t *testing.T) {
	t.Parallel()
	h := newEnvironment(t)         // its directory is one that a private server may enter
	pgtest.New(t, pgtest.Schema{}) // skips the test where there is no server
	video, err := os.ReadFile(makeClip(t, t.TempDir(), time.Second, "128x96"))
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		WorkdirRoot:         filepath.Dir(h.data),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(e *testscript.Env) error { return setUpScript(t, e, filepath.Dir(program), video) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code":  codeCommand,
			"json":  jsonCommand,
			"keys":  keysCommand,
			"setid": setIDCommand,
		},
	})
}

func setUpScript(t *testing.T, e *testscript.Env, bin string, video []byte) error {
	e.Setenv("PATH", bin+string(filepath.ListSeparator)+e.Getenv("PATH"))
	e.Setenv("PROGRAM", filepath.Join(bin, "cuelight")) // as the program names itself
	e.Setenv("CUELIGHT_DATA_DIR", filepath.Join(e.WorkDir, "data"))
	e.Setenv("CUELIGHT_PG_BIN", os.Getenv("CUELIGHT_PG_BIN"))
	e.Setenv("CUELIGHT_CONFIG", "/dev/null") // not that of this machine
	e.Setenv("LANG", "C.UTF-8")
	// A database without tables, on a server that was there before.
	foreign := pgtest.New(t, pgtest.Schema{}).Config().ConnString()
	e.Setenv("FOREIGN", foreign)
	address, err := url.Parse(foreign)
	if err != nil {
		return err
	}
	address.Path = "/nowhere"
	e.Setenv("ABSENT", address.String())
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

// setIDCommand is `setid VARIABLE member=value`: the id of the task, or of another thing.
func setIDCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: setid VARIABLE member=value")
	}
	member, value, _ := strings.Cut(args[1], "=")
	found := where(ts, member, value)
	id, isOfTask := found["task_id"].(string)
	if !isOfTask {
		id = fmt.Sprint(found["id"])
	}
	ts.Setenv(args[0], id)
	ts.Setenv(args[0]+"_TAIL", id[len(id)-8:])
}
