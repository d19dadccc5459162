//go:build !linux

package pgtest

import (
	"bytes"
	"fmt"
	"os/exec"
)

// memoryDir has a counterpart on Linux only.
func memoryDir() (string, bool) { return "", false }

// childrenOf lists the running children of a process.
func childrenOf(parent int) ([]int, error) {
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
