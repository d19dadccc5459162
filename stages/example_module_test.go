package stages_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/pgtest"
)

// The example is its own module: it imports all that a program which embeds Cuelight
// needs.
func TestExampleModule_CompletesItsPipeline(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	cmd := exec.Command("go", "run", ".")
	cmd.Dir = "../docs/example"
	cmd.Env = append(os.Environ(), "DATABASE_URL="+pool.Config().ConnString())
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
