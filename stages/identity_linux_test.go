package stages_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

// A killed process stays in the list of processes until its parent has asked for its status.
func TestRunner_ExpiresAPredecessorThatItsParentHasNotWaitedFor(t *testing.T) {
	child := exec.Command("true")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }() // its status does not matter
	var fields []string
	waittest.Until(t, "the child has ended", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		fields = strings.Fields(string(text))
		return fields[2] == "Z"
	})
	f := &fakeBackend{}
	f.register = func(self store.Worker) {
		own := strings.Split(self.ProcessIdentity, "/")
		self.ID, self.PID, self.ProcessIdentity = store.ID{2}, child.Process.Pid, own[0]+"/"+own[1]+"/"+fields[21]
		f.workers = []store.Worker{self}
	}
	synctest.Test(t, func(t *testing.T) {
		_, stop := runFake(t, f, pipeline(t, noop, "one"), nil)
		time.Sleep(time.Minute)
		stop()
	})
	if !slices.Equal(f.expiredWorkers, []store.ID{{2}}) {
		t.Errorf("expired workers are %v, want the one whose process has ended", f.expiredWorkers)
	}
}
