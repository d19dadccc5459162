//go:build !linux

package child

import (
	"fmt"
	"os/exec"
	"strconv"
	"syscall"
)

// dieWithUs has no counterpart here.
func dieWithUs(*syscall.SysProcAttr) {}

// usageOf asks ps. The memory is what is resident now.
func usageOf(pid int) (u Usage, err error) {
	out, err := exec.Command("ps", "-o", "time=,rss=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return u, fmt.Errorf("ask ps about process %d: %w", pid, err)
	}
	var clock string
	var kib int64
	if _, err := fmt.Sscan(string(out), &clock, &kib); err != nil {
		return u, fmt.Errorf("read what ps says of process %d: %w", pid, err)
	}
	u.Memory = kib << 10
	u.CPU, err = clockTime(clock)
	return u, err
}
