package node

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/bench/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startScript starts a script that needs no packages, with any Node that is installed.
func startScript(t *testing.T, script string, o harness.Options) (*Process, error) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip(err)
	}
	a := App{Files: fstest.MapFS{"test.mjs": {Data: []byte(script)}}, Script: "test.mjs"}
	cmd, err := a.command(node, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return startProcess(shortContext(t), cmd, config{WorkMS: 1}, o)
}

// shortContext is for calls that take less than a second.
func shortContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func mustStartScript(t *testing.T, script string, o harness.Options) *Process {
	t.Helper()
	p, err := startScript(t, script, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func expect(t *testing.T, err error, part string) {
	t.Helper()
	if part == "" && err != nil || part != "" && (err == nil || !strings.Contains(err.Error(), part)) {
		t.Errorf("error is %v, want %q", err, part)
	}
}

func TestProcess_SubmitsAndReportsInOrder(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen []harness.Observation
	p := mustStartScript(t, `
onRequest = async ({ first, n }) => {
  for (let task = first; task < first + n; task++) {
    await doWork(task, 3);
    reportCompleted(task, 3);
  }
};
reportReady();
await inputEnd;
`, harness.Options{Observe: func(m harness.Observation) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, m)
	}})
	expect(t, p.SubmitAll(shortContext(t), 7, 2), "")
	expect(t, p.Stop(shortContext(t)), "")
	var before time.Time
	for i, m := range seen {
		if m.Task != 7+int64(i/3) || m.Stage != harness.Assemble || m.Kind != harness.Kind(i%3) || m.At.Before(before) {
			t.Errorf("observation %d is %+v", i, m)
		}
		before = m.At
	}
	if len(seen) != 6 {
		t.Errorf("%d observations, want 6", len(seen))
	}
}

func TestSubmit_ReturnsTheScriptsError(t *testing.T) {
	t.Parallel()
	p := mustStartScript(t,
		`onRequest = async () => { throw new Error("no such queue"); }; reportReady(); await inputEnd;`, harness.Options{})
	expect(t, p.Submit(shortContext(t), 0), "no such queue")
	expect(t, p.Stop(shortContext(t)), "")
}

func TestProcess_CollectsErrors(t *testing.T) {
	t.Parallel()
	p := mustStartScript(t, `reportReady(); await inputEnd; reportFailure(new Error("job failed"));`, harness.Options{})
	expect(t, p.Stop(shortContext(t)), "job failed")
}

func TestStart_ReturnsTheScriptsError(t *testing.T) {
	t.Parallel()
	_, err := startScript(t, `throw new Error("no database");`, harness.Options{})
	expect(t, err, "no database")
}

func TestProcess_ReportsAnUnexpectedExit(t *testing.T) {
	t.Parallel()
	p := mustStartScript(t, `onRequest = async () => process.exit(0); reportReady();`, harness.Options{})
	expect(t, p.Submit(shortContext(t), 0), "had already ended")
	expect(t, p.Submit(shortContext(t), 1), "had already ended")
	expect(t, p.Stop(shortContext(t)), "had already ended")
}

func TestStop_KillsAScriptThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	p := mustStartScript(t, `reportReady(); setInterval(() => {}, 1000);`, harness.Options{})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want context.DeadlineExceeded", err)
	}
	if err := syscall.Kill(p.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process still exists: %v", err)
	}
}

func TestSetup_IsUnavailableWithoutNPM(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
	a := App{
		Name: "test", Files: fstest.MapFS{"package.json": {}, "package-lock.json": {}, "test.mjs": {}}, Script: "test.mjs",
	}
	if err := a.Setup(shortContext(t), ""); !errors.Is(err, harness.ErrUnavailable) {
		t.Errorf("error is %v, want ErrUnavailable", err)
	}
}

func TestInstall_RunsOnceForConcurrentCallers(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip(err)
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
	files := fstest.MapFS{
		"package.json": {Data: []byte(`{"name":"nothing","private":true}`)},
		"package-lock.json": {
			Data: []byte(`{"name":"nothing","lockfileVersion":3,"requires":true,"packages":{"":{"name":"nothing"}}}`),
		},
	}
	var all sync.WaitGroup
	dirs := make([]string, 3)
	for i := range dirs {
		all.Go(func() {
			var err error
			dirs[i], err = install(shortContext(t), "nothing", files)
			expect(t, err, "")
		})
	}
	all.Wait()
	if dirs[0] == "" || dirs[0] != dirs[1] || dirs[1] != dirs[2] {
		t.Errorf("installed to %q", dirs)
	}
}

func TestIsNewEnough_ComparesMajorThenMinor(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"v20.20.2\n": false, "v22.17.9\n": false, "v22.18.0\n": true, "v24.0.0\n": true, "": false, "22.18.0": false,
	} {
		if got := isNewEnough([]byte(version)); got != want {
			t.Errorf("%q is new enough: %v, want %v", version, got, want)
		}
	}
}
