//go:build unix && !linux

package childproc_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

const hasDeathSignal = false

// groupMembers lists the processes of a group that are not zombies: PID 1 of a
// container does not always reap orphans.
func groupMembers(t *testing.T, group int) (pids []string) {
	t.Helper()
	list, err := exec.Command("ps", "-A", "-o", "pid=,pgid=,stat=").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[1] == strconv.Itoa(group) && !strings.HasPrefix(f[2], "Z") {
			pids = append(pids, f[0])
		}
	}
	return pids
}
