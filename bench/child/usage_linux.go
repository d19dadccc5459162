package child

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// usageOf asks the process's clock, which is exact to the nanosecond where /proc
// has hundredths of a second, of which an idle program uses one in a minute. The
// memory is the most that was ever resident.
func usageOf(pid int) (u Usage, err error) {
	const schedClock = 2 // CPUCLOCK_SCHED of <linux/posix-timers.h>: what all threads have run
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return u, fmt.Errorf("read CPU clock of process %d: %w", pid, err)
	}
	u.CPU = time.Duration(t.Nano())
	u.Memory, err = peak(pid)
	return u, err
}

// peak is VmHWM. (The kernel's ru_maxrss is at least what the process that
// started this one had.)
func peak(pid int) (int64, error) {
	file := fmt.Sprintf("/proc/%d/status", pid)
	status, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	var kib int64
	if _, err := fmt.Sscanf(string(rest), "%d kB", &kib); err != nil {
		return 0, fmt.Errorf("read VmHWM in %s: %w", file, err)
	}
	return kib << 10, nil
}
