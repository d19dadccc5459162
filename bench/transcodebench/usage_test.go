package transcodebench

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestChildrenUsage_IncludesEndedChildren(t *testing.T) {
	t.Parallel()
	before, err := childrenUsage()
	must(t, err)
	p, err := childproc.Start(exec.Command("/bin/sh", "-c", "while :; do :; done"), childproc.Options{})
	must(t, err)
	waittest.Until(t, "the process has used 50 ms of CPU", func() bool {
		u, err := proofkit.UsageOf(p.PID())
		must(t, err)
		return u.CPU >= 50*time.Millisecond
	})
	if err := p.Stop(t.Context(), syscall.SIGTERM); err == nil {
		t.Error("Stop of a shell without a handler returned no error")
	}
	after, err := childrenUsage()
	must(t, err)
	if used := after.CPU - before.CPU; used < 50*time.Millisecond {
		t.Errorf("the ended process used %v, less than before", used)
	}
}
