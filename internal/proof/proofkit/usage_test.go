package proofkit_test

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestUsageOf_MeasuresCPUAndMemory(t *testing.T) {
	t.Parallel()
	p, err := childproc.Start(exec.Command("/bin/sh", "-c", "while :; do :; done"), childproc.Options{})
	must(t, err)
	var u proofkit.Usage
	waittest.Until(t, "the process has used 50 ms of CPU", func() bool {
		var err error
		u, err = proofkit.UsageOf(p.PID())
		must(t, err)
		return u.CPU >= 50*time.Millisecond
	})
	// Checked only now: a starting process has one or two pages.
	if u.Resident < 100<<10 || u.Peak < u.Resident || u.Peak > 100<<20 {
		t.Errorf("a shell has %+v", u)
	}
	if err := p.Stop(t.Context(), syscall.SIGTERM); err == nil {
		t.Error("Stop of a shell without a handler returned no error")
	}
	if _, err := proofkit.UsageOf(p.PID()); err == nil {
		t.Error("an ended process still has a usage")
	}
}
