//go:build unix

package childproc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shell(script string) *exec.Cmd { return exec.Command("/bin/sh", "-c", script) }

func start(t *testing.T, script string, o childproc.Options) *childproc.Process {
	t.Helper()
	p, err := childproc.Start(shell(script), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestErr_HasTheExitCodeAndTheEndOfStandardError(t *testing.T) {
	t.Parallel()
	err := childproc.Run(t.Context(), shell("echo no disk >&2; exit 3"), childproc.Options{})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.HasSuffix(err.Error(), "exit status 3: no disk") {
		t.Errorf("error %v", err)
	}
	err = childproc.Run(t.Context(), exec.Command("/no/such/program"), childproc.Options{})
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "start program: ") {
		t.Errorf("error %v", err)
	}
}

func TestStop_LetsTheChildEndByItself(t *testing.T) {
	t.Parallel()
	ready := make(chan struct{})
	cmd := shell("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	cmd.Stdout = childproc.Lines(func([]byte) { close(ready) })
	p, err := childproc.Start(cmd, childproc.Options{Session: true})
	if err != nil {
		t.Fatal(err)
	}
	<-ready
	if p.State() != nil || p.Err() != nil {
		t.Errorf("a running child has state %v and error %v", p.State(), p.Err())
	}
	if err := p.Stop(t.Context(), syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if !p.State().Success() {
		t.Errorf("state is %v", p.State())
	}
	if err := p.Stop(t.Context(), syscall.SIGTERM); !errors.Is(err, childproc.ErrEnded) {
		t.Errorf("second stop: %v", err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal after the end: %v", err)
	}
}

func TestStop_KillsTheGroupAfterTheGracePeriod(t *testing.T) {
	t.Parallel()
	ready := make(chan struct{})
	cmd := shell("trap '' TERM; sleep 3600 & echo ready; wait; wait")
	cmd.Stdout = childproc.Lines(func([]byte) { close(ready) })
	p, err := childproc.Start(cmd, childproc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	<-ready
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx, syscall.SIGTERM); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	waittest.Until(t, "the group is gone", func() bool { return len(groupMembers(t, p.PID())) == 0 })
}

func TestRun_KillsTheChildWhenTheContextIsDone(t *testing.T) {
	t.Parallel()
	cause := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	cmd := shell("echo started; sleep 3600")
	cmd.Stdout = childproc.Lines(func([]byte) { cancel(cause) })
	if err := childproc.Run(ctx, cmd, childproc.Options{}); !errors.Is(err, cause) {
		t.Errorf("error %v", err)
	}
	if err := childproc.Run(ctx, shell("exit 0"), childproc.Options{}); !errors.Is(err, cause) {
		t.Errorf("error %v for a context that was done before", err)
	}
}

func TestLines_PassesCompleteLines(t *testing.T) {
	t.Parallel()
	var got []string
	cmd := shell(`printf 'one\ntw'; sleep 0.02; printf 'o\n\nthree\nrest'`)
	cmd.Stdout = childproc.Lines(func(line []byte) { got = append(got, string(line)) })
	if err := childproc.Run(t.Context(), cmd, childproc.Options{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"one", "two", "", "three"}; !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

func TestTail_KeepsTheEnd(t *testing.T) {
	t.Parallel()
	var tail childproc.Tail
	for i := range 10_000 {
		fmt.Fprintf(&tail, "line %d\n", i)
	}
	if text := tail.String(); len(text) > 2048 || !strings.HasSuffix(text, "line 9999") {
		t.Errorf("%d bytes, which end with %q", len(text), text[max(0, len(text)-20):])
	}
}

func TestStart_RunsTheStartHook(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	_, err := childproc.Start(shell("exit 0"), childproc.Options{Start: func(func() error) error { return refused }})
	if !errors.Is(err, refused) {
		t.Errorf("error %v", err)
	}
}

// parentEnv has the directory in which the test binary, as the parent of a child
// that outlives it or does not, writes the child's number.
const parentEnv = "CUELIGHT_TEST_PARENT_DIR"

func TestChild_DiesWithItsParentUnlessItOutlivesIt(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(parentEnv); dir != "" {
		playParent(t, dir)
	}
	for name, outlives := range map[string]bool{"dies with it": false, "outlives it": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !outlives && !hasDeathSignal {
				t.Skip("this system has no death signal")
			}
			dir := t.TempDir()
			if err := syscall.Mkfifo(filepath.Join(dir, "question"), 0o600); err != nil {
				t.Fatal(err)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self, "-test.run=^TestChild_DiesWithItsParentUnlessItOutlivesIt$")
			cmd.Env = append(os.Environ(), parentEnv+"="+dir, fmt.Sprintf("%s_OUTLIVES=%t", parentEnv, outlives))
			parent, err := childproc.Start(cmd, childproc.Options{LeavesGroup: true})
			if err != nil {
				t.Fatal(err)
			}
			var pid int
			waittest.Until(t, "the child has started", func() bool {
				text, _ := os.ReadFile(filepath.Join(dir, "pid"))
				pid, err = strconv.Atoi(string(text))
				return err == nil
			})
			if err := parent.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-parent.Done()
			if outlives {
				askChild(t, dir)
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Errorf("the child did not outlive its parent: %v", err)
				}
			}
			waittest.Until(t, "the child is gone", func() bool { return len(groupMembers(t, pid)) == 0 })
		})
	}
}

// askChild waits for an answer of the child, whose parent has ended.
func askChild(t *testing.T, dir string) {
	t.Helper()
	question, err := os.OpenFile(filepath.Join(dir, "question"), os.O_RDWR, 0) // waits for no reader
	if err != nil {
		t.Fatal(err)
	}
	defer question.Close()
	if _, err := question.WriteString("alive?\n"); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the child, which outlives its parent, answers", func() bool {
		_, err := os.Stat(filepath.Join(dir, "answer"))
		return err == nil
	})
}

// playParent starts a child, which answers a question, and waits to be killed.
func playParent(t *testing.T, dir string) {
	t.Helper()
	cmd := shell("read line <question; echo yes >answer; exec sleep 3600")
	cmd.Dir = dir
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = null
	p, err := childproc.Start(cmd, childproc.Options{
		Session: true, OutlivesParent: os.Getenv(parentEnv+"_OUTLIVES") == "true",
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pid")
	if err := os.WriteFile(file+".new", []byte(strconv.Itoa(p.PID())), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	t.Fatal("the child ended before this program was killed")
}
