package report_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/bench/report"
)

func TestDescribeMachine_FindsHardwareAndVersions(t *testing.T) {
	t.Parallel()
	m := report.DescribeMachine(t.Context(), t.TempDir())
	for _, name := range []string{"processor", "memory", "system", "database on", "go", "postgres", "ffmpeg"} {
		if m[name] == "" {
			t.Errorf("%s is missing in %v", name, m)
		}
	}
	if runtime.GOOS == "linux" && (m["memory"] == "unknown" || m["database on"] == "unknown") {
		t.Errorf("%v", m)
	}
}

func TestDescribeMachine_FindsTheFileSystemOfTheDirectory(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("/proc is a file system of Linux")
	}
	if m := report.DescribeMachine(t.Context(), "/proc"); m["database on"] != "proc on proc" {
		t.Errorf("/proc is on %q", m["database on"])
	}
}

func TestHeadCommit_MarksChangesAsDirty(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	dir := t.TempDir()
	if got := report.HeadCommit(t.Context(), dir); got != "unknown" {
		t.Errorf("%q without a commit", got)
	}
	git := func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		c.Dir = dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q")
	write("bench/a.go")
	git("add", ".")
	git("commit", "-q", "-m", "a")
	hash := git("rev-parse", "HEAD")
	write("bench/results/1.json")
	if got := report.HeadCommit(t.Context(), filepath.Join(dir, "bench")); got != hash {
		t.Errorf("%q with only a new result, want %q", got, hash)
	}
	write("b.go")
	if got := report.HeadCommit(t.Context(), filepath.Join(dir, "bench")); got != hash+"-dirty" {
		t.Errorf("%q with a new file, want %q", got, hash+"-dirty")
	}
}
