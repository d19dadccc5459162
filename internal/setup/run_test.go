package setup_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checkout copies the files that `make run` needs. Its cuelight is a fake that prints
// each argument and "|" on a line.
func checkout(t *testing.T) (m *machine, dir string) {
	t.Helper()
	m = newMachine(t)
	m.link("make")
	m.script("ffmpeg", "#!/bin/sh\nfor out do :; done\necho made >\"$out\"\n")
	m.script("ffprobe", "")
	m.script("no-build", "#!/bin/sh\n")

	dir = t.TempDir()
	for _, d := range []string{"internal/setup", "bin"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"Makefile", "internal/setup/run.sh", "internal/setup/install.sh"} {
		b, err := os.ReadFile(filepath.Join("../..", f))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fake := "#!/bin/sh\nprintf '%s|\\n' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "bin/cuelight"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	return m, dir
}

func (m *machine) makeRun(dir string, video ...string) *exec.Cmd {
	cmd := m.command("make", append([]string{"--no-print-directory", "run", "GO=no-build"}, video...)...)
	cmd.Dir = dir
	return cmd
}

func TestMakeRun_PassesTheFileNameUnchanged(t *testing.T) {
	t.Parallel()
	m, dir := checkout(t)
	for _, name := range []string{
		"holiday.mp4",
		"two  spaces .mp4",
		"-y.mp4",
		"--help",
		`it's "quoted".mp4`,
		"$HOME $$ ${x} $(shell touch evil).mp4",
		"`touch evil` $(touch evil); touch evil & #.mp4",
		`back\slash%d*?[a].mp4`,
		"line\nbreak.mp4",
		"umläut – 視.mp4",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		typed := m.makeRun(dir, "VIDEO="+name)
		inherited := m.makeRun(dir)
		inherited.Env = append(inherited.Env, "VIDEO="+name)
		for _, cmd := range []*exec.Cmd{typed, inherited} {
			out, err := cmd.CombinedOutput()
			if want := "run|\n--|\n" + name + "|\n"; err != nil || string(out) != want {
				t.Errorf("VIDEO=%q: %v: %q, want %q", name, err, out, want)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "evil")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a part of a file's name was executed")
	}
}

func TestMakeRun_RejectsAMissingVideoBeforeInstalling(t *testing.T) {
	t.Parallel()
	m, dir := checkout(t)
	m.remove("ffmpeg")
	cmd := m.makeRun(dir, "VIDEO=nowhere.mp4")
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 2 ||
		!strings.Contains(string(out), "VIDEO=nowhere.mp4: no such file") {
		t.Errorf("%v: %s", err, out)
	}
	if calls := m.calls(); calls != "" {
		t.Errorf("called apt-get: %s", calls)
	}
}

func TestMakeRun_MakesASampleOnceWithoutAVideo(t *testing.T) {
	t.Parallel()
	m, dir := checkout(t)
	for range 2 {
		out, err := m.makeRun(dir).Output()
		if want := "run|\n--|\nbin/sample.mp4|\n"; err != nil || string(out) != want {
			t.Fatalf("%v: %q, want %q", err, out, want)
		}
		m.script("ffmpeg", "#!/bin/sh\nexit 1\n") // not to be called again
	}
}
