package proofkit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// clockTick is the kernel's unit of processor time in /proc, on every architecture that Go knows.
const clockTick = 10 * time.Millisecond

// ProcessesInSession lists the processes of a process group or a session that still run, each as
// its pid and command line. A session also has the children that made groups of their own.
// Zombies do not run.
func ProcessesInSession(id int) ([]string, error) {
	var found []string
	err := forEachProcess(func(pid int, s stat) {
		if s.state != "Z" && s.state != "X" && (s.group == id || s.session == id) {
			found = append(found, fmt.Sprintf("%d %s", pid, commandLine(pid, s.name)))
		}
	})
	return found, err
}

// FamilyCPUTime returns the processor time that a process and its children have used, including
// children that have ended.
func FamilyCPUTime(pid int) (time.Duration, error) {
	parent, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	total := parent.cpu + parent.childrenCPU
	err = forEachProcess(func(_ int, s stat) {
		if s.parent == pid {
			total += s.cpu + s.childrenCPU
		}
	})
	return total, err
}

// UsageOf returns what a process has used, without its children. Its CPU clock is exact to the
// nanosecond; /proc counts hundredths of a second, and an idle program uses only one in a minute.
// The peak is VmHWM: the kernel's ru_maxrss includes that of the parent.
func UsageOf(pid int) (u Usage, err error) {
	const schedClock = 2 // CPUCLOCK_SCHED of <linux/posix-timers.h>: the run time of all threads
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|schedClock), &t); err != nil {
		return u, fmt.Errorf("read CPU clock of process %d: %w", pid, err)
	}
	u.CPU = time.Duration(t.Nano())
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	fields := map[string]*int64{"VmHWM": &u.Peak, "VmRSS": &u.Resident, "RssAnon": &u.Anonymous}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if field := fields[name]; field != nil {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			*field = kib << 10
		}
	}
	if u.Resident == 0 {
		return u, fmt.Errorf("/proc/%d/status has no VmRSS", pid)
	}
	return u, nil
}

// forEachProcess calls visit for every process. It skips those that end meanwhile.
func forEachProcess(visit func(pid int, s stat)) error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		s, err := readStat(pid)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		case err != nil:
			return fmt.Errorf("list processes: %w", err)
		default:
			visit(pid, s)
		}
	}
	return nil
}

// stat is what /proc/PID/stat says of a process.
type stat struct {
	name, state            string
	parent, group, session int
	cpu, childrenCPU       time.Duration // of its children, those that have ended
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(text))
}

// parseStat reads the beginning of proc_pid_stat(5). The name may hold spaces and brackets: the
// last closing bracket ends it.
func parseStat(line string) (stat, error) {
	end := strings.LastIndexByte(line, ')')
	_, name, isNamed := strings.Cut(line[:max(end, 0)], "(")
	fields := strings.Fields(line[end+1:])
	if !isNamed || len(fields) < 15 {
		return stat{}, fmt.Errorf("%q is not a line of /proc/PID/stat", line)
	}
	numbers := make([]int, 15)
	for _, i := range []int{1, 2, 3, 11, 12, 13, 14} {
		n, err := strconv.Atoi(fields[i])
		if err != nil {
			return stat{}, fmt.Errorf("field %d of /proc/PID/stat: %w", i+3, err)
		}
		numbers[i] = n
	}
	return stat{
		name: name, state: fields[0], parent: numbers[1], group: numbers[2], session: numbers[3],
		cpu:         time.Duration(numbers[11]+numbers[12]) * clockTick,
		childrenCPU: time.Duration(numbers[13]+numbers[14]) * clockTick,
	}, nil
}

func commandLine(pid int, name string) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 {
		return name
	}
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}
