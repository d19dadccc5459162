package invariant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Processes lists the processes of a group or a session that still run, each as
// its pid and command line. Who started them as a session of their own (Setsid)
// also finds children that made groups of their own. Those that ended and were
// not waited for do not run.
func Processes(group int) ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var left []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		of, err := readStat(pid)
		if gone(err) || err == nil && (of.state == "Z" || of.state == "X") {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		if of.group == group || of.session == group {
			left = append(left, fmt.Sprintf("%d %s", pid, commandLine(pid, of.name)))
		}
	}
	return left, nil
}

// gone says that a process ended while it was looked at.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

type stat struct {
	name, state    string
	group, session int
}

func readStat(pid int) (stat, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(raw))
}

// parseStat reads the beginning of proc_pid_stat(5). The name may hold spaces
// and brackets; the last closing one ends it.
func parseStat(line string) (stat, error) {
	head, tail, ok := cutLast(line, ")")
	_, name, named := strings.Cut(head, "(")
	fields := strings.Fields(tail)
	if !ok || !named || len(fields) < 4 {
		return stat{}, fmt.Errorf("%q is not the state of a process", line)
	}
	group, err := strconv.Atoi(fields[2])
	if err != nil {
		return stat{}, fmt.Errorf("process group: %w", err)
	}
	session, err := strconv.Atoi(fields[3])
	if err != nil {
		return stat{}, fmt.Errorf("session: %w", err)
	}
	return stat{name: name, state: fields[0], group: group, session: session}, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	at := strings.LastIndex(s, sep)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(sep):], true
}

func commandLine(pid int, name string) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(raw) == 0 {
		return name
	}
	return strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " "))
}
