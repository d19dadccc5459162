//go:build !linux

package usage

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// OfProcess returns what a process has used, without its children, as ps reports it. The
// memory is the current resident size.
func OfProcess(pid int) (u Usage, err error) {
	out, err := exec.Command("ps", "-o", "time=,rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return u, fmt.Errorf("run ps for process %d: %w", pid, err)
	}
	var cpu string
	if _, err := fmt.Sscan(string(out), &cpu, &u.Memory); err != nil {
		return u, fmt.Errorf("read output of ps for process %d: %w", pid, err)
	}
	u.Memory <<= 10
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
