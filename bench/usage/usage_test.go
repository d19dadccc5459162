package usage_test

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/bench/usage"
	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOfProcess_MeasuresCPUAndMemory(t *testing.T) {
	t.Parallel()
	p, err := childproc.Start(exec.Command("/bin/sh", "-c", "while :; do :; done"), childproc.Options{})
	must(t, err)
	var u usage.Usage
	waittest.Until(t, "the process has used 50 ms of CPU", func() bool {
		var err error
		u, err = usage.OfProcess(p.PID())
		must(t, err)
		return u.CPU >= 50*time.Millisecond
	})
	// Checked only now: a starting process has one or two pages.
	if u.Memory < 100<<10 || u.Memory > 100<<20 {
		t.Errorf("a shell has %d bytes of memory", u.Memory)
	}
	before, err := usage.OfChildren()
	must(t, err)
	if err := p.Stop(t.Context(), syscall.SIGTERM); err == nil {
		t.Error("Stop of a shell without a handler returned no error")
	}
	after, err := usage.OfChildren()
	must(t, err)
	if used := after.CPU - before.CPU; used < 50*time.Millisecond {
		t.Errorf("the ended process used %v, less than before", used)
	}
	if _, err := usage.OfProcess(p.PID()); err == nil {
		t.Error("an ended process still has a usage")
	}
}

func TestOfThisProcess_Rises(t *testing.T) {
	t.Parallel()
	before, err := usage.OfThisProcess()
	must(t, err)
	if before.Memory < 1<<20 {
		t.Errorf("this process has %d bytes of memory", before.Memory)
	}
	waittest.Until(t, "the CPU time rises", func() bool {
		after, err := usage.OfThisProcess()
		must(t, err)
		return after.CPU > before.CPU
	})
}
