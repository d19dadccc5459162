package pgserver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// children are the processes that the process has started and that still are.
func children(parent int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, file := range stats {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		// "pid (name) state parent …", where the name may hold anything.
		var state string
		var ppid int
		if _, err := fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &ppid); err != nil || ppid != parent {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			found = append(found, pid)
		}
	}
	return found, nil
}
