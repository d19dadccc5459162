// Package setup_test tests the scripts in this directory, on a PATH with fakes of the
// package manager, sudo and id.
package setup_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/postgres"
)

// aptGet is a fake that records its arguments and installs by creating links on the PATH.
// While the file "stale" exists, an installation fails until an update; while "broken"
// exists, always.
const aptGet = `#!/bin/sh
here=$(dirname "$0")
case " $* " in *' --print-uris '*) echo 'Need to get 12.5 MB/99 MB of archives.'; exit ;; esac
echo "$*" >>"$here/calls"
case " $* " in
*' update '*) rm -f "$here/stale" ;;
*' install '*)
	if [ -e "$here/stale" ]; then echo 'E: Unable to locate package'; exit 100; fi
	if [ -e "$here/broken" ]; then echo 'E: the disk is full'; exit 100; fi
	for p in ffmpeg ffprobe gcc chromium; do ln -sf "$(command -v true)" "$here/$p"; done ;;
esac
`

const apt = "-q -y -o DPkg::Lock::Timeout=300 "

// machine is a directory used as PATH: with the usual small tools, Go, a compiler, and
// programs that a test adds.
type machine struct {
	t   *testing.T
	dir string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, dir: t.TempDir()}
	for _, tool := range []string{
		"sh", "awk", "cat", "date", "dirname", "env", "grep", "ln", "mkdir", "mktemp", "mv",
		"rm", "sed", "sleep", "tail", "tee", "touch", "tr", "true", "uname", "go",
	} {
		m.link(tool)
	}
	m.script("id", "#!/bin/sh\necho 0\n")
	m.script("gcc", "#!/bin/sh\ncat >/dev/null\n")
	if _, err := postgres.Find(); errors.Is(err, postgres.ErrNotInstalled) {
		t.Skip(err)
	}
	if out, err := m.command("sh", "install.sh", "run").CombinedOutput(); bytes.Contains(out, []byte("postgres")) {
		t.Fatalf("install.sh does not find PostgreSQL: %v: %s", err, out)
	}
	m.script("apt-get", aptGet)
	return m
}

func (m *machine) link(tool string) {
	m.t.Helper()
	path, err := exec.LookPath(tool)
	if err != nil {
		m.t.Skip(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(m.dir, tool)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) script(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(text), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) remove(name string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.dir, name)); err != nil {
		m.t.Fatal(err)
	}
}

// calls returns the arguments of each call of apt-get, without the usual flags.
func (m *machine) calls() string {
	b, err := os.ReadFile(filepath.Join(m.dir, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), apt, "")
}

func (m *machine) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(m.dir, name), args...)
	cmd.Env = []string{
		"PATH=" + m.dir, "HOME=" + os.Getenv("HOME"), "TMPDIR=" + m.t.TempDir(), "CC=gcc", "CUELIGHT_TEST_POOLER=0",
	}
	return cmd
}

// install runs install.sh and returns its output and exit code.
func (m *machine) install(what string, env ...string) (output string, code int) {
	m.t.Helper()
	cmd := m.command("sh", "install.sh", what)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestInstall_DoesNothingIfNothingIsMissing(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.script("ffmpeg", "")
	m.script("ffprobe", "")
	for _, what := range []string{"run", "test"} {
		if output, code := m.install(what); output != "" || code != 0 {
			t.Errorf("install.sh %s: exit %d, output %q", what, code, output)
		}
	}
	if calls := m.calls(); calls != "" {
		t.Errorf("called apt-get: %s", calls)
	}
}

func TestInstall_InstallsOnlyMissingPrograms(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	output, code := m.install("test")
	if code != 0 || !strings.Contains(output, "installing ffmpeg with apt-get, this once; 12.5 MB to download") {
		t.Errorf("exit %d, output %q", code, output)
	}
	if got, want := m.calls(), "install --no-install-recommends ffmpeg\n"; got != want {
		t.Errorf("apt-get calls %q, want %q", got, want)
	}
}

func TestInstall_UpdatesStalePackageLists(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.script("stale", "")
	if output, code := m.install("run"); code != 0 {
		t.Errorf("exit %d, output %q", code, output)
	}
	want := "install --no-install-recommends ffmpeg\nupdate\ninstall --no-install-recommends ffmpeg\n"
	if got := m.calls(); got != want {
		t.Errorf("apt-get calls %q, want %q", got, want)
	}
}

func TestInstall_PrintsTheFailureAndExits1(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.script("broken", "")
	output, code := m.install("run")
	if code != 1 || !strings.Contains(output, "E: the disk is full") {
		t.Errorf("exit %d, output %q", code, output)
	}
}

func TestInstall_PrintsTheCommandWithoutRightsAndExits2(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sudo bool
		env  string
		line string
	}{
		"no sudo":      {false, "", "    apt-get update && apt-get install -y --no-install-recommends ffmpeg\n"},
		"sudo refuses": {true, "", "    sudo apt-get update && sudo apt-get install -y --no-install-recommends ffmpeg\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.script("id", "#!/bin/sh\necho 1000\n")
			if c.sudo {
				m.script("sudo", "#!/bin/sh\nexit 1\n")
			}
			output, code := m.install("run")
			if code != 2 || !strings.Contains(output, c.line) {
				t.Errorf("exit %d, output %q", code, output)
			}
			if calls := m.calls(); calls != "" {
				t.Errorf("called apt-get: %s", calls)
			}
		})
	}
}

func TestInstall_InstallsNothingIfForbidden(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	output, code := m.install("run", "CUELIGHT_INSTALL=no")
	if code != 2 || !strings.Contains(output, "    apt-get update && ") || m.calls() != "" {
		t.Errorf("exit %d, output %q, apt-get calls %q", code, output, m.calls())
	}
}

func TestInstall_SucceedsWithoutACompiler(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.script("ffmpeg", "")
	m.script("ffprobe", "")
	m.script("id", "#!/bin/sh\necho 1000\n")
	m.remove("gcc")
	output, code := m.install("test")
	if code != 0 || !strings.Contains(output, "gcc libc6-dev") {
		t.Errorf("exit %d, output %q", code, output)
	}
}

func TestInstall_InstallsABrowserOnlyInCI(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.script("ffmpeg", "")
	m.script("ffprobe", "")
	m.script("python3", "")
	if output, code := m.install("test", "CI=true", "CUELIGHT_TEST_BROWSER=0"); output != "" || code != 0 {
		t.Errorf("declined: exit %d, output %q", code, output)
	}
	if output, code := m.install("test", "CI=true"); code != 0 {
		t.Errorf("exit %d, output %q", code, output)
	}
	if got, want := m.calls(), "install --no-install-recommends chromium\n"; got != want {
		t.Errorf("apt-get calls %q, want %q", got, want)
	}
}

func TestInstall_InstallsPythonOnlyInCI(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.script("ffmpeg", "")
	m.script("ffprobe", "")
	for _, ci := range []string{"CI=false", "CI=true"} {
		if output, code := m.install("test", ci, "CUELIGHT_TEST_BROWSER=0"); code != 0 {
			t.Errorf("%s: exit %d, output %q", ci, code, output)
		}
	}
	if got, want := m.calls(), "install --no-install-recommends python3\n"; got != want {
		t.Errorf("apt-get calls %q, want %q", got, want)
	}
}

func TestInstall_InstallsProgramsOfListenerTestsIfNoPasswordIsNeeded(t *testing.T) {
	t.Parallel()
	const (
		refuse = "exit 1"
		allow  = `if [ "$1" = -n ]; then exit 0; fi; exec "$@"`
		both   = "install --no-install-recommends pgbouncer\ninstall --no-install-recommends iproute2\n"
	)
	for name, c := range map[string]struct {
		id, sudo, have string
		env            []string
		want           string
	}{
		"as root":   {"0", refuse, "", []string{"CUELIGHT_TEST_POOLER=1"}, both},
		"with sudo": {"1000", allow, "", []string{"CUELIGHT_TEST_POOLER=1"}, both},
		"in CI":     {"0", refuse, "", []string{"CUELIGHT_TEST_POOLER=", "CI=true"}, both},
		"one is installed": {
			"0", refuse, "ip", []string{"CUELIGHT_TEST_POOLER=1"}, "install --no-install-recommends pgbouncer\n",
		},
		"without rights": {"1000", refuse, "", []string{"CUELIGHT_TEST_POOLER=1"}, ""},
		"forbidden":      {"0", refuse, "", []string{"CUELIGHT_TEST_POOLER=1", "CUELIGHT_INSTALL=no"}, ""},
		"declined":       {"0", refuse, "", []string{"CI=true"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			m.script("ffmpeg", "")
			m.script("ffprobe", "")
			m.script("python3", "")
			m.script("id", "#!/bin/sh\necho "+c.id+"\n")
			m.script("sudo", "#!/bin/sh\n"+c.sudo+"\n")
			if c.have != "" {
				m.script(c.have, "")
			}
			output, code := m.install("test", append(c.env, "CUELIGHT_TEST_BROWSER=0")...)
			if code != 0 || c.want == "" && output != "" {
				t.Errorf("exit %d, output %q", code, output)
			}
			if got := m.calls(); got != c.want {
				t.Errorf("apt-get calls %q, want %q", got, c.want)
			}
		})
	}
}

func TestInstall_SucceedsWithoutAPooler(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.script("ffmpeg", "")
	m.script("ffprobe", "")
	m.script("broken", "")
	output, code := m.install("test", "CUELIGHT_TEST_POOLER=1")
	if code != 0 || strings.Count(output, "will be skipped") != 2 {
		t.Errorf("exit %d, output %q", code, output)
	}
}
