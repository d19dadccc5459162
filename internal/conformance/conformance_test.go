package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/conformance"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
)

// workerEnv makes this test program a worker.
const workerEnv = "CUELIGHT_TEST_CONFORMANCE_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := work(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // most of them wait
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// work is a worker that the packages stages and stages/remote make of a function.
func work(ctx context.Context) error {
	var client *remote.Client
	p, err := stages.New("conformance", stages.Stage{Name: "work", Work: func(ctx context.Context, job *stages.Job) (any, error) {
		return copyFile(ctx, client, job)
	}})
	if err != nil {
		return err
	}
	client, err = remote.NewClient(remote.ClientOptions{
		URL: os.Getenv("CUELIGHT_SERVER") + "/api/v1/worker", Key: os.Getenv("CUELIGHT_KEY"), Graph: p.Graph(),
	})
	if err != nil {
		return err
	}
	r := stages.Runner{Pipeline: p, Backend: client.Backend(), Wakes: client.Wakes()}
	return r.Run(ctx)
}

func copyFile(ctx context.Context, client *remote.Client, job *stages.Job) (any, error) {
	dir, err := os.MkdirTemp("", "cuelight-worker-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "input")
	_, size, err := client.Download(ctx, job.Token, "input", file, func(int64) {})
	if err != nil {
		return nil, err
	}
	var params struct{ Seconds float64 }
	if err := json.Unmarshal(job.Params, &params); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(time.Duration(params.Seconds * float64(time.Second))):
	}
	return map[string]int64{"bytes": size}, client.Upload(ctx, job.Token, "output", file, func(int64) {})
}

// results runs the kit and returns its results by check. The worker's output is in the test's log.
func results(t *testing.T, o conformance.Options) map[string]error {
	t.Helper()
	output := &safeBuffer{}
	all := make(map[string]error)
	o.Output = output
	o.Report = func(r conformance.Result) { t.Logf("%s: %v, %s", r.Check, r.Err, r.Took); all[r.Check] = r.Err }
	failed, err := conformance.Run(t.Context(), o)
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, err := range all {
		if err != nil {
			count++
		}
	}
	if count != failed {
		t.Errorf("%d checks failed, and Run returned %d", count, failed)
	}
	if t.Failed() || failed > 0 {
		t.Logf("the worker printed:\n%s", output)
	}
	return all
}

// safeBuffer is a buffer for several goroutines.
type safeBuffer struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func wantAll(t *testing.T, worker string) {
	t.Helper()
	all := results(t, conformance.Options{Worker: worker})
	for _, name := range conformance.Names() {
		if err, ran := all[name]; err != nil || !ran {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGoWorker_Conforms(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	wantAll(t, workerEnv+"=1 exec "+os.Args[0])
}

func TestPythonWorker_Conforms(t *testing.T) {
	needPython(t)
	wantAll(t, "exec python3 ../../docs/worker.py")
}

func TestChecks_FailForAWorkerThatBreaksTheProtocol(t *testing.T) {
	needPython(t)
	for name, c := range map[string]struct{ check, old, new string }{
		"sends no heartbeats":              {"good-path", "beat.start()", "beat.start(); done.set()"},
		"takes a lost claim for its own":   {"late", "not answer.get(\"retry\")", "not answer.get(\"stale\")"},
		"does not register again":          {"lost-lease", "worker = register()\n            elif", "pass\n            elif"},
		"works on after a cancel":          {"cancel", "lost.wait(", "time.sleep("},
		"goes on where it was after a cut": {"cut-upload", "int(e.headers[\"Upload-Offset\"])", "at + len(piece)"},
		"is not drained":                   {"drain", "while not controls[\"drain\"]:", "while True:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../../docs/worker.py")
			if err != nil || !strings.Contains(string(text), c.old) {
				t.Fatalf("docs/worker.py has no %q: %v", c.old, err)
			}
			file := filepath.Join(t.TempDir(), "worker.py")
			if err := os.WriteFile(file, []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			o := conformance.Options{Worker: "exec python3 " + file, Checks: []string{c.check}}
			if results(t, o)[c.check] == nil {
				t.Error("it passed")
			}
		})
	}
}

func needPython(t *testing.T) {
	t.Helper()
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	if _, err := exec.LookPath("python3"); err != nil {
		if ci := os.Getenv("CI"); ci != "" && ci != "false" {
			t.Fatal("python3 is not installed")
		}
		t.Skip("python3 is not installed")
	}
}
