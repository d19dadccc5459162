package stages

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/cuelight/cuelight/store"
)

// place is where a process runs, for those who come after it to know whether
// it can still be there. What a machine does not tell is empty, and then
// nothing is known.
type processIdentity struct {
	boot  string // another one after every start of the machine
	space string // within which process ids are different ones
	start string // when, by the kernel's count, this process began
}

func currentProcess() processIdentity {
	return processIdentity{boot: bootID(), space: processSpace(), start: processStart(os.Getpid())}
}

// String is at most about a hundred characters.
func (p processIdentity) String() string {
	return strings.Join([]string{p.boot, p.space, p.start}, "/")
}

func parsePlace(s string) (processIdentity, bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return processIdentity{}, false
	}
	return processIdentity{parts[0], parts[1], parts[2]}, true
}

// outlived reports whether a worker is certainly dead: its process id, here, is
// nobody's or that of a process which began at another time. Nothing is certain
// of one that ran before the machine was started again: another may have its
// name.
func (p processIdentity) hasOutlived(host string, w store.Worker) bool {
	was, ok := parsePlace(w.ProcessIdentity)
	return ok && w.Host == host && p.boot != "" && was.boot == p.boot && was.space == p.space && ended(w.PID, was.start)
}

// ended reports whether the process that had the id, and began then, is gone.
func ended(pid int, start string) bool {
	if pid <= 0 {
		return false
	}
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	now := processStart(pid)
	return start != "" && now != "" && now != start
}

func firstLine(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.ReplaceAll(strings.TrimSpace(line), "/", "")
}
