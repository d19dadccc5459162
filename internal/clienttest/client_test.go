package clienttest

import (
	"bytes"
	_ "embed"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/browsertest"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
	"github.com/cuelight/cuelight/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	//go:embed typescript/package.json
	packageJSON []byte
	//go:embed typescript/package-lock.json
	packageLock []byte
	//go:embed goclient.go
	goClient []byte
)

const source = "https://media.example/film.mp4"

// server is an API server with a key of the scope submit.
type server struct {
	*store.Store
	t        *testing.T
	url, key string
}

func serve(t *testing.T) *server {
	t.Helper()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	guard, err := access.New(access.Options{Keys: access.NewKeyStore(st.DB())})
	if err != nil {
		t.Fatal(err)
	}
	s, err := web.New(web.Options{Store: st, Guard: guard, Profiles: true})
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(s.Handler())
	t.Cleanup(ts.Close)
	t.Cleanup(s.Drain)
	_, key, err := access.NewKeyStore(st.DB()).CreateKey(t.Context(), "generated client", access.Submit.String())
	if err != nil {
		t.Fatal(err)
	}
	_, err = engine.New(st.DB(), st.Graph()).RegisterWorker(t.Context(), store.Worker{
		Host: "studio", PID: 7, Version: "v1",
	})
	if err != nil {
		t.Fatal(err)
	}
	return &server{st, t, ts.URL, key}
}

// writeDescription writes the server's OpenAPI description into a directory.
func (s *server) writeDescription(dir string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+"/openapi.json", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "openapi.json"), text, 0o600)
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		s.t.Fatalf("description: %s, %v", resp.Status, err)
	}
}

// checkTask checks the task whose id a client printed.
func (s *server) checkTask(printed string) {
	s.t.Helper()
	id, err := store.ParseID(strings.TrimSpace(printed))
	if err != nil {
		s.t.Fatalf("the client printed %q, want an id", printed)
	}
	task, err := s.Get(s.t.Context(), id)
	if err != nil || task.Title() != "A title" || task.Source != source || !strings.HasPrefix(task.SubmittedBy, "key ") {
		s.t.Errorf("the client's task is %+v, %v", task, err)
	}
}

// run runs a program in a directory, and returns its output.
func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", filepath.Base(program), strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// copyDir copies a directory to a temporary one, where the test adds generated files.
func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestGeneratedTypeScriptClient_SubmitsAndReads(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("installs and compiles a client")
	}
	node, modules := browsertest.Node(t, packageJSON, packageLock)
	modules = filepath.Join(modules, "node_modules")
	s, dir := serve(t), copyDir(t, "typescript")
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	s.writeDescription(dir)
	run(t, dir, node, filepath.Join(modules, "openapi-typescript", "bin", "cli.js"), "openapi.json",
		"--output", "schema.ts")
	run(t, dir, node, filepath.Join(modules, "typescript", "bin", "tsc"), "--project", ".")
	s.checkTask(run(t, dir, node, filepath.Join("built", "client.js"), s.url, s.key, source))
}

func TestGeneratedGoClient_SubmitsAndReads(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles a generator and a client")
	}
	s, dir := serve(t), copyDir(t, "golang")
	s.writeDescription(dir)
	client := bytes.TrimPrefix(goClient, []byte("//go:build ignore\n"))
	err := errors.Join(os.WriteFile(filepath.Join(dir, "client.go"), client, 0o600),
		os.Mkdir(filepath.Join(dir, "api"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "api",
		"-o", "api/api.gen.go", "openapi.json")
	program := filepath.Join(dir, "client")
	run(t, dir, "go", "build", "-trimpath", "-o", program, ".")
	s.checkTask(run(t, dir, program, s.url, s.key, source))
}
