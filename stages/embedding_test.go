package stages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/pgtest"
)

// The example is its own module: it imports all that a program which embeds Cuelight
// needs.
func TestExampleModule_CompletesItsPipeline(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	cmd := exec.Command("go", "run", "-trimpath", ".")
	cmd.Dir = "../docs/example"
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "DATABASE_URL="+pool.Config().ConnString())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, stage := range []string{"fetch", "clean", "speech", "music", "chapters", "mix", "send"} {
		if !strings.Contains(string(out), "completed "+stage+"\n") {
			t.Errorf("%s was not completed:\n%s", stage, out)
		}
	}
}

// The program of docs/embedding.md, in a module of its own.
func TestEmbeddingGuide_LeadsToARunningPipeline(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/embedding.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(guide), "```go\n")
	program, _, _ = strings.Cut(program, "```")
	_, output, _ := strings.Cut(string(guide), "```\n\n```\n")
	output, _, _ = strings.Cut(output, "```")

	dir := t.TempDir()
	// The modules that docs/example uses are here already; the program needs no others.
	module, err := os.ReadFile("../docs/example/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("../docs/example/go.sum")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"main.go": program, "go.sum": string(sums),
		"go.mod": strings.Replace(string(module), "=> ../..", "=> "+root, 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pool := pgtest.New(t, pgtest.Schema{})
	cmd := exec.Command("go", "run", "-trimpath", "-mod=mod", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "DATABASE_URL="+pool.Config().ConnString(), "GOFLAGS=", "GOPROXY=off")
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != output {
		t.Errorf("%v\n%s\nwant %s", err, out, output)
	}
}
