package child

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// Own is what this process has taken, without its children.
func OwnUsage() (Usage, error) {
	u, err := rusage(syscall.RUSAGE_SELF)
	if err != nil {
		return u, err
	}
	now, err := usageOf(os.Getpid())
	u.Memory = now.Memory
	return u, err
}

// Children is what the children of this process have taken that have ended,
// with theirs: the CPU time of all, and the most memory that one of them had,
// which on Linux is never less than what this process had when it started it.
func ChildrenUsage() (Usage, error) { return rusage(syscall.RUSAGE_CHILDREN) }

func rusage(who int) (Usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(who, &r); err != nil {
		return Usage{}, os.NewSyscallError("getrusage", err)
	}
	u := Usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano()), Memory: int64(r.Maxrss)}
	if runtime.GOOS != "darwin" { // where it is in bytes
		u.Memory <<= 10
	}
	return u, nil
}
