package usage

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// OfProcess returns what a process has used, without its children. The process's CPU clock is
// exact to the nanosecond; /proc counts hundredths of a second, and an idle program uses only
// one in a minute. The memory is VmHWM, the peak: the kernel's ru_maxrss includes that of the
// parent.
func OfProcess(pid int) (u Usage, err error) {
	const schedClock = 2 // CPUCLOCK_SCHED of <linux/posix-timers.h>: the run time of all threads
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return u, fmt.Errorf("read CPU clock of process %d: %w", pid, err)
	}
	u.CPU = time.Duration(t.Nano())
	file := fmt.Sprintf("/proc/%d/status", pid)
	status, err := os.ReadFile(file)
	if err != nil {
		return u, err
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmHWM:"))
	if _, err := fmt.Sscanf(string(rest), "%d kB", &u.Memory); err != nil {
		return u, fmt.Errorf("read VmHWM in %s: %w", file, err)
	}
	u.Memory <<= 10
	return u, nil
}
