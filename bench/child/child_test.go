package child_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/bench/child"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, script string) *child.Process {
	t.Helper()
	p, err := child.Start(exec.Command("/bin/sh", "-c", script))
	must(t, err)
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for something that nobody tells of.
func until(t *testing.T, what string, true func() bool) {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); !true(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%s: it is not so after 30 s", what)
		}
	}
}

func TestUsage_MeasuresCPUAndMemory(t *testing.T) {
	t.Parallel()
	p := start(t, "while :; do :; done")
	var u child.Usage
	until(t, "it has used 50 ms of CPU", func() bool {
		var err error
		u, err = p.Usage()
		must(t, err)
		return u.CPU >= 50*time.Millisecond
	})
	// Only now: while it starts, a process has a page or two.
	if u.Memory < 100<<10 || u.Memory > 100<<20 {
		t.Errorf("a shell has %d bytes of memory", u.Memory)
	}
	before, err := child.ChildrenUsage()
	must(t, err)
	if err := p.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("a shell that does not heed SIGTERM ended with %v", err)
	}
	after, err := child.ChildrenUsage()
	must(t, err)
	if took := after.CPU - before.CPU; took < 50*time.Millisecond {
		t.Errorf("having ended it has taken %v, which was more before", took)
	}
	if _, err := p.Usage(); err == nil {
		t.Error("it is gone, and still has a usage")
	}
}

func TestOwnUsage_Rises(t *testing.T) {
	t.Parallel()
	before, err := child.OwnUsage()
	must(t, err)
	if before.Memory < 1<<20 {
		t.Errorf("this process has %d bytes of memory", before.Memory)
	}
	until(t, "work shows", func() bool {
		after, err := child.OwnUsage()
		must(t, err)
		return after.CPU > before.CPU
	})
}

func TestStop_EndsAProcessThatHandlesSIGTERM(t *testing.T) {
	t.Parallel()
	said := make(chan struct{})
	cmd := exec.Command("/bin/sh", "-c", "trap 'exit 0' TERM; echo ready >&2; while :; do sleep 0.01; done")
	cmd.Stderr = writer(func([]byte) { close(said) })
	p, err := child.Start(cmd)
	must(t, err)
	<-said
	must(t, p.Stop(t.Context()))
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

func TestWait_KillsTheProcessGroupAtTheDeadline(t *testing.T) {
	t.Parallel()
	p := start(t, "trap '' TERM; sleep 3600 & wait; wait")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	until(t, "all of its group are gone", func() bool { return errors.Is(syscall.Kill(-p.Pid(), 0), syscall.ESRCH) })
}

func TestWait_ReturnsStandardErrorInTheError(t *testing.T) {
	t.Parallel()
	err := start(t, "echo no such luck >&2; exit 3").Wait(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 3: no such luck") {
		t.Errorf("error is %v", err)
	}
	if _, err := child.Start(exec.Command("/no/such/program")); err == nil || !strings.Contains(err.Error(), "start /no/such/program") {
		t.Errorf("error is %v", err)
	}
}

func TestStop_ReportsAProcessThatEndedByItself(t *testing.T) {
	t.Parallel()
	p := start(t, "exit 0")
	<-p.Done()
	if err := p.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("error is %v", err)
	}
}
