package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

func TestRun_FinishesRunningStagesOnTheFirstSignal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGINT, 130}, {syscall.SIGTERM, 143}} {
		t.Run(c.signal.String(), func(t *testing.T) {
			t.Parallel()
			p := newWorkDir(t)
			p.gate()
			r := p.start("run", "--json", "--grace", "10m", "clip.mp4")
			p.waitReached()
			r.signal(c.signal)
			r.waitForOutput("a second signal stops at once", 1)
			p.open()
			r.end(c.code)
			if r.stdout.Len() > 0 {
				t.Errorf("standard output has %q of a task that has not ended", &r.stdout)
			}
			if !strings.Contains(r.stderr(), "1 task not finished") {
				t.Errorf("it printed\n%s", r.stderr())
			}
			p.noneHeld()
			task := p.list()[0]
			if s := task.Stages[0].Status; s != store.StatusCompleted {
				t.Errorf("stage ingest is %s", s)
			}
			if task.Priority != 0 {
				t.Errorf("priority %d, want that of a task without a waiting user", task.Priority)
			}
		})
	}
}

// As nohup starts it.
func TestRun_KeepsIgnoringSignalsThatItsParentIgnores(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.gate()
	r := p.startWith(func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `trap '' HUP INT; exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}, "run", "--json", "--grace", "10m", "clip.mp4")
	p.waitReached()
	r.signal(syscall.SIGHUP)
	r.signal(syscall.SIGINT)
	r.signal(syscall.SIGTERM)
	r.waitForOutput("a second signal stops at once", 1)
	p.open()
	r.end(143) // neither of the others, and no second signal
}

func TestRun_StopsAtOnceOnTheSecondSignal(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.gate()
	r := p.start("run", "--json", "--grace", "10m", "clip.mp4")
	p.waitReached()
	r.signal(syscall.SIGINT)
	r.waitForOutput("a second signal stops at once", 1)
	r.signal(syscall.SIGINT)
	r.end(130)
	if n := p.atGate(); n > 0 {
		t.Errorf("%d processes of ffmpeg are left", n)
	}
	p.noneHeld()
	for _, s := range p.list()[0].Stages {
		if s.Status != store.StatusCompleted && s.Attempts > 0 {
			t.Errorf("stage %s has %d attempts; a release is not one", s.Name, s.Attempts)
		}
	}
}

func TestRun_StopsWhenTheGraceEnds(t *testing.T) {
	t.Parallel()
	p := newWorkDir(t)
	p.gate()
	r := p.start("run", "--json", "--grace", "1s", "clip.mp4")
	p.waitReached()
	r.signal(syscall.SIGTERM)
	r.end(143)
	if n := p.atGate(); n > 0 {
		t.Errorf("%d processes of ffmpeg are left", n)
	}
	p.noneHeld()
}

// The next run works, however the last one ended and whatever files it left.
func TestRun_ContinuesAfterAKilledRun(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	p.gate()
	killed := p.start("run", "clip.mp4")
	p.waitReached()
	killed.signal(syscall.SIGKILL)
	killed.end(-1)
	p.open()
	r := p.run(0, "run", "--json", "other.mp4")
	if got := decode[reported](r); len(got) != 1 || got[0].Source != "other.mp4" ||
		got[0].Status != store.StatusCompleted {
		t.Errorf("reports %+v", got)
	}
}

func TestRun_SharesADataDirectoryWithAnotherRun(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	one := p.start("run", "--json", "--publish-dir", "one", "clip.mp4", "missing.mp4")
	two := p.start("run", "--json", "--publish-dir", "two", "other.mp4")
	one.end(3)
	two.end(0)
	type ended struct {
		Source    string
		Published *string
	}
	for _, r := range append(decode[ended](one), decode[ended](two)...) {
		if r.Source == "missing.mp4" {
			continue
		}
		// Either may have published it, and each reports where that was.
		if r.Published == nil {
			t.Errorf("%s was not published", r.Source)
		} else if _, err := os.Stat(*r.Published); err != nil {
			t.Error(err)
		}
	}
}

func TestRun_EndsInOrderWhenItsOutputIsClosed(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	reader, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	r := p.startWith(func(cmd *exec.Cmd) { cmd.Stdout = out }, "run", "--json", "missing.mp4", "clip.mp4")
	out.Close()
	r.end(1)
	if strings.Contains(r.stderr(), "panic") {
		t.Errorf("it printed\n%s", r.stderr())
	}
	p.noneHeld()
}

func TestRun_OutlivesItsPrivateServer(t *testing.T) {
	t.Parallel()
	p := newPrivateWorkDir(t)
	p.gate()
	r := p.start("run", "--json", "clip.mp4")
	p.waitReached()
	text, err := os.ReadFile(p.path("data/postgres/data/postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	var server int
	if _, err := fmt.Sscan(string(text), &server); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(server, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	waittest.Until(p.t, "the server has ended", func() bool { return syscall.Kill(server, 0) != nil })
	p.open()
	r.end(0)
}

// It is not parallel, so that nothing else comes and goes meanwhile.
func TestProgram_LeavesNothingRunning(t *testing.T) {
	p := newPrivateWorkDir(t)
	before := goleak.IgnoreCurrent()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"run", "--json", p.path("missing.mp4")}, strings.NewReader(""),
		&stdout, &stderr, p.env)
	if code != 1 || stdout.Len() == 0 {
		t.Errorf("exit code %d; it printed\n%s", code, &stderr)
	}
	goleak.VerifyNone(t, before)
	if _, err := os.Stat(p.path("data/postgres/data/postmaster.pid")); err == nil {
		t.Error("the private server still runs")
	}
}
