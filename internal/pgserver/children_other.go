//go:build !linux

package pgserver

import (
	"bytes"
	"fmt"
	"os/exec"
)

// children are the processes that the process has started and that still are.
func children(parent int) ([]int, error) {
	list, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []int
	for line := range bytes.Lines(list) {
		var pid, ppid int
		if _, err := fmt.Sscan(string(line), &pid, &ppid); err == nil && ppid == parent {
			found = append(found, pid)
		}
	}
	return found, nil
}
