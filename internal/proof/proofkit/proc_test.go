package proofkit_test

import (
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestProcessesInSession_ListsProcessesUntilTheyEnd(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "sleep 1000 & sleep 1000 & echo started; wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group := cmd.Process.Pid
	ended := false
	defer func() {
		if !ended {
			_ = syscall.Kill(-group, syscall.SIGKILL)
			_ = cmd.Wait()
		}
	}()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	found, err := proofkit.ProcessesInSession(group)
	if err != nil || len(found) == 0 {
		t.Fatalf("found %q, %v", found, err)
	}
	if runtime.GOOS == "linux" && (len(found) != 3 || !strings.HasPrefix(found[0], strconv.Itoa(group)+" sh -c ")) {
		t.Errorf("found %q, want the shell and its two children", found)
	}
	if err := syscall.Kill(-group, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	ended = true
	// Another process inherits the orphaned children and takes a moment to reap them.
	waittest.Equal(t, "the list of processes in the session", "[]", func() string {
		found, err := proofkit.ProcessesInSession(group)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%q", found)
	})
}
