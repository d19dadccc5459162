//go:build !linux

package proofkit

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ProcessesInSession reports whether a process of the group still runs. Only Linux says which
// ones, and what else is in the session.
func ProcessesInSession(id int) ([]string, error) {
	switch err := syscall.Kill(-id, 0); {
	case errors.Is(err, syscall.ESRCH):
		return nil, nil
	case err == nil || errors.Is(err, syscall.EPERM):
		return []string{fmt.Sprintf("a process of group %d", id)}, nil
	default:
		return nil, fmt.Errorf("list processes: %w", err)
	}
}

// FamilyCPUTime returns an error: it needs /proc.
func FamilyCPUTime(int) (time.Duration, error) {
	return 0, errors.New("the CPU time of children can only be read on Linux")
}

// UsageOf returns what a process has used, without its children, as ps reports it.
func UsageOf(pid int) (u Usage, err error) {
	out, err := exec.Command("ps", "-o", "time=,rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return u, fmt.Errorf("run ps for process %d: %w", pid, err)
	}
	var cpu string
	if _, err := fmt.Sscan(string(out), &cpu, &u.Resident); err != nil {
		return u, fmt.Errorf("read output of ps for process %d: %w", pid, err)
	}
	u.Resident <<= 10
	u.Peak = u.Resident
	u.CPU, err = parsePSTime(cpu)
	return u, err
}

// parsePSTime reads a time as ps writes it: 1-02:03:04, 02:03:04 or 3:04.56.
func parsePSTime(text string) (time.Duration, error) {
	parts := strings.Split(strings.Replace(text, "-", ":", 1), ":")
	if len(parts) < 2 || len(parts) > 3+strings.Count(text, "-") {
		return 0, fmt.Errorf("%q is not a time of ps", text)
	}
	seconds, weights := 0.0, []float64{1, 60, 3600, 86400}
	for i := range parts {
		v, err := strconv.ParseFloat(parts[len(parts)-1-i], 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a time of ps: %w", text, err)
		}
		seconds += v * weights[i]
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
