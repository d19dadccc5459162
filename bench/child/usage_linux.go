package child

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// tick is the kernel's unit of time in /proc, the same on every machine.
const tick = time.Second / 100

// usageOf reads /proc. The memory is the most that was ever resident.
func usageOf(pid int) (u Usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// "pid (name) state …", where the name may hold anything; the times are the
	// 14th and the 15th word of it all.
	words := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const user, system = 14 - 3, 15 - 3
	if len(words) <= system {
		return u, fmt.Errorf("read /proc/%d/stat: %q", pid, stat)
	}
	for _, word := range words[user : system+1] {
		n, err := strconv.ParseInt(string(word), 10, 64)
		if err != nil {
			return u, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}
		u.CPU += time.Duration(n) * tick
	}
	u.Memory, err = peak(fmt.Sprintf("/proc/%d/status", pid))
	return u, err
}

// peak is VmHWM. (The kernel's ru_maxrss is at least what the process that
// started this one had.)
func peak(file string) (int64, error) {
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
