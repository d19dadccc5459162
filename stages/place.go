package stages

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/cuelight/cuelight/store"
)

// place is where a process runs, for those who come after it to know whether
// it can still be there. What a machine does not tell is empty, and then
// nothing is known.
type place struct {
	machine string // the same after a restart of the machine
	boot    string // another one after that
	space   string // within which process ids are different ones
	start   string // when, by the kernel's count, this process began
}

func here() place {
	p := place{boot: bootID(), space: processSpace(), start: processStart(os.Getpid())}
	// The id itself should stay on the machine; see machine-id(5).
	if id := machineID(); id != "" {
		mac := hmac.New(sha256.New, []byte(id))
		mac.Write([]byte("cuelight"))
		p.machine = hex.EncodeToString(mac.Sum(nil)[:16])
	}
	return p
}

// String is at most about a hundred characters.
func (p place) String() string {
	return strings.Join([]string{p.machine, p.boot, p.space, p.start}, "/")
}

func parsePlace(s string) (place, bool) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 {
		return place{}, false
	}
	return place{parts[0], parts[1], parts[2], parts[3]}, true
}

// outlived reports whether a worker is certainly dead: its process id, here, is
// nobody's or that of a process which began at another time; or it ran on this
// machine before that was started again. A machine that was cloned with its name and its id
// shows that it is another one by beating.
func (p place) outlived(host string, w store.Worker) bool {
	was, ok := parsePlace(w.Place)
	switch {
	case !ok || w.Host != host || p.boot == "" || was.boot == "":
		return false
	case was.boot == p.boot:
		return was.space == p.space && ended(w.PID, was.start)
	}
	return p.machine != "" && was.machine == p.machine && w.BeatAge > store.Grace(w.Lease)
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
