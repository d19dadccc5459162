package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

// workDir is a directory with a video, in which the program is run.
type workDir struct {
	t   *testing.T
	dir string
	env []string
}

// newWorkDir returns a directory with a database on a shared server, which is much faster
// than a private one.
func newWorkDir(t *testing.T) *workDir {
	t.Helper()
	p := newPrivateWorkDir(t)
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	p.env = append(p.env, "DATABASE_URL="+pool.Config().ConnString())
	return p
}

func newPrivateWorkDir(t *testing.T) *workDir {
	t.Helper()
	needPrograms(t)
	p := &workDir{t: t, dir: tempDir(t)}
	video, err := sample()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"clip.mp4", "other.mp4"} {
		if err := os.WriteFile(p.path(name), video, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing of this process's environment, except what finds programs.
	p.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "TMPDIR=" + os.Getenv("TMPDIR"),
		"LANG=C.UTF-8", raceName + "=" + raceValue,
		"CUELIGHT_PG_BIN=" + os.Getenv("CUELIGHT_PG_BIN"), "CUELIGHT_DATA_DIR=" + p.path("data"), "CUELIGHT_CONFIG=/dev/null",
	}
	return p
}

func (p *workDir) path(name string) string { return filepath.Join(p.dir, name) }

// gate creates an ffmpeg that waits until open is called, and records that it was
// started. It lists what it has and encodes the trials at once, because every process begins with that.
func (p *workDir) gate() {
	p.t.Helper()
	real, err := exec.LookPath("ffmpeg")
	if err != nil {
		p.t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\ncase \"$*\" in *-codecs | *-filters | *testsrc2*) exec '%[3]s' \"$@\" ;; esac\n"+
		"echo $$ >>'%[1]s'\nwhile [ ! -e '%[2]s' ]; do sleep 0.05; done\nexec '%[3]s' \"$@\"\n",
		p.path("reached"), p.path("open"), real)
	if err := os.WriteFile(p.path("ffmpeg"), []byte(script), 0o755); err != nil {
		p.t.Fatal(err)
	}
	// This ffmpeg reads and writes files of the test, which a sandbox would not allow.
	p.env = append(p.env, "CUELIGHT_FFMPEG="+p.path("ffmpeg"), "CUELIGHT_SANDBOX=off")
}

func (p *workDir) open() {
	p.t.Helper()
	if err := os.WriteFile(p.path("open"), nil, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// waitReached waits until a stage waits at the gate.
func (p *workDir) waitReached() {
	p.t.Helper()
	waittest.Until(p.t, "the gate is reached", func() bool {
		text, _ := os.ReadFile(p.path("reached"))
		return strings.HasSuffix(string(text), "\n")
	})
}

// atGate counts the processes that wait at the gate, or are left there.
func (p *workDir) atGate() int {
	text, err := os.ReadFile(p.path("reached"))
	if err != nil {
		p.t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err != nil {
			p.t.Fatal(err)
		}
		if syscall.Kill(pid, 0) == nil {
			n++
		}
	}
	return n
}

// process is the program, running.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout bytes.Buffer // to be read after end

	mu    sync.Mutex
	lines []string // of standard error
	more  chan struct{}
	ended chan error
}

func (p *workDir) start(args ...string) *process {
	p.t.Helper()
	return p.startWith(nil, args...)
}

func (p *workDir) startWith(change func(*exec.Cmd), args ...string) *process {
	p.t.Helper()
	r := &process{t: p.t, cmd: exec.Command("cuelight", args...), more: make(chan struct{}, 1), ended: make(chan error, 1)}
	r.cmd.Dir, r.cmd.Env = p.dir, p.env
	r.cmd.Stdout = &r.stdout
	if change != nil {
		change(r.cmd)
	}
	stderr, err := r.cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		r.read(stderr)
		r.ended <- r.cmd.Wait()
	}()
	p.t.Cleanup(func() {
		if r.cmd.ProcessState == nil {
			_ = r.cmd.Process.Kill() // a test that failed
		}
	})
	return r
}

func (r *process) read(stderr io.Reader) {
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		r.mu.Lock()
		r.lines = append(r.lines, lines.Text())
		r.mu.Unlock()
		select {
		case r.more <- struct{}{}:
		default:
		}
	}
}

func (r *process) stderr() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "\n")
}

// waitForOutput waits until a text was printed n times on standard error.
func (r *process) waitForOutput(text string, n int) {
	r.t.Helper()
	deadline := time.After(waittest.Limit)
	for strings.Count(r.stderr(), text) < n {
		select {
		case <-r.more:
		case err := <-r.ended:
			r.t.Fatalf("it ended (%v) without printing %q; it printed\n%s", err, text, r.stderr())
		case <-deadline:
			r.t.Fatalf("it does not print %q; it printed\n%s", text, r.stderr())
		}
	}
}

func (r *process) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// end waits for the end, and checks the exit code.
func (r *process) end(code int) {
	r.t.Helper()
	select {
	case err := <-r.ended:
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			r.t.Fatal(err)
		}
	case <-time.After(waittest.Limit):
		r.t.Fatalf("it does not end; it printed\n%s", r.stderr())
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.t.Errorf("exit code %d, want %d; it printed\n%s", got, code, r.stderr())
	}
}

// run is start and end.
func (p *workDir) run(code int, args ...string) *process {
	p.t.Helper()
	r := p.start(args...)
	r.end(code)
	return r
}

// decode returns the JSON objects on standard output.
func decode[T any](r *process) (all []T) {
	r.t.Helper()
	for line := range bytes.Lines(r.stdout.Bytes()) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		all = append(all, v)
	}
	return all
}

// reported is a task as `run --json` prints it, and `watch --json` at the end.
type reported struct {
	TaskID store.ID     `json:"task_id"`
	Source string       `json:"source"`
	Status store.Status `json:"status"`
}

// listed is a task as `list --json` prints it.
type listed struct {
	TaskID   store.ID     `json:"task_id"`
	Source   string       `json:"source"`
	Status   store.Status `json:"status"`
	Priority int          `json:"priority"`
	Stages   []struct {
		Name     string       `json:"stage"`
		Status   store.Status `json:"status"`
		Attempts int          `json:"attempts"`
	} `json:"stages"`
}

func (p *workDir) list() []listed {
	p.t.Helper()
	return decode[listed](p.run(0, "list", "--json"))
}

// noneHeld checks that no stage of any task is claimed.
func (p *workDir) noneHeld() {
	p.t.Helper()
	for _, task := range p.list() {
		for _, s := range task.Stages {
			if s.Status == store.StatusInProgress {
				p.t.Errorf("stage %s of %s is still claimed", s.Name, task.Source)
			}
		}
	}
}
