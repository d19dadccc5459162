package setup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script is a script of the package on a host with systemd.
type script struct {
	t   *testing.T
	dir string // of the fakes; systemctl writes its arguments into the file "calls", and fails where "broken" exists
}

const systemctl = `#!/bin/sh
here=$(dirname "$0")
case $* in *is-enabled*) [ -e "$here/enabled" ]; exit ;; esac
echo "${0##*/} $*" >>"$here/calls"
[ ! -e "$here/broken" ]
`

func newScript(t *testing.T) script {
	t.Helper()
	s := script{t, t.TempDir()}
	for _, tool := range []string{"sh", "dirname"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(s.dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"systemd-sysusers", "rmdir"} {
		writeFile(t, filepath.Join(s.dir, name), "#!/bin/sh\n")
	}
	writeFile(t, filepath.Join(s.dir, "stat"), "#!/bin/sh\necho cuelight\n")
	writeFile(t, filepath.Join(s.dir, "systemctl"), systemctl)
	return s
}

func (s script) touch(name string) { writeFile(s.t, filepath.Join(s.dir, name), "") }

// run runs a script, and returns its output and the calls of systemctl.
func (s script) run(name string, args ...string) (printed, calls string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join("package", name+".sh"))
	if err != nil {
		s.t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(s.dir, "calls"))
	here := strings.NewReplacer("/run/systemd/system", s.dir, "/var/lib/cuelight", s.dir).Replace(string(text))
	cmd := exec.Command("sh", append([]string{"-c", here, name}, args...)...)
	cmd.Env = []string{"PATH=" + s.dir}
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Errorf("%s %q: %v: %s", name, args, err, out)
	}
	log, err := os.ReadFile(filepath.Join(s.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	return string(out), string(log)
}

const units = "cuelight.service cuelight-work.service\n"

// Debian calls the script for a package that was removed before as for an upgrade.
func TestPackage_SaysHowToStartServicesThatAreNotEnabled(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	for _, args := range [][]string{{"configure"}, {"configure", "0.0.1"}, {"1"}} {
		if printed, _ := s.run("postinst", args...); !strings.Contains(printed, "systemctl enable --now cuelight\n") {
			t.Errorf("postinst %q printed %q", args, printed)
		}
	}
	s.touch("enabled")
	printed, calls := s.run("postinst", "configure", "0.0.1")
	if want := "systemctl daemon-reload\nsystemctl try-restart " + units; printed != "" || calls != want {
		t.Errorf("an upgrade printed %q, and called %q, want %q", printed, calls, want)
	}
}

func TestPackage_AsksThePolicyOfDebian(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	writeFile(t, filepath.Join(s.dir, "deb-systemd-invoke"), systemctl)
	if _, calls := s.run("postinst", "configure", "0.0.1"); !strings.HasSuffix(calls, "deb-systemd-invoke try-restart "+units) {
		t.Errorf("an upgrade called %q", calls)
	}
	if _, calls := s.run("prerm", "remove"); calls != "deb-systemd-invoke stop "+units+"systemctl disable "+units {
		t.Errorf("a removal called %q", calls)
	}
}

func TestPackage_CanBeRemovedWhereSystemdFails(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	s.touch("broken")
	for _, call := range []string{"postinst configure", "prerm remove", "postrm remove", "prerm 0", "postrm 0", "postrm purge"} {
		name, arg, _ := strings.Cut(call, " ")
		if printed, calls := s.run(name, arg); !strings.Contains(printed, "cuelight: ") || calls == "" {
			t.Errorf("%s printed %q, and called %q", call, printed, calls)
		}
	}
}

func TestPackage_SaysHowToDeleteDataAndAccountAfterAPurge(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	printed, _ := s.run("postrm", "purge")
	for _, want := range []string{"to delete them: rm -r " + s.dir + "\n", "to delete it: userdel cuelight\n"} {
		if !strings.Contains(printed, want) {
			t.Errorf("it printed %q, without %q", printed, want)
		}
	}
	if printed, _ := s.run("postrm", "remove"); printed != "" {
		t.Errorf("a removal printed %q", printed)
	}
}
