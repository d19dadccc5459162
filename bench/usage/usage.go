// Package usage measures the CPU and the memory that processes use.
//
//	before, err := usage.OfProcess(pid)
//	…
//	after, err := usage.OfProcess(pid)
package usage

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// Usage is what processes have used.
type Usage struct {
	CPU    time.Duration // of all threads, in user and in system mode
	Memory int64         // resident bytes: the peak where the system reports it, else the current value
}

// OfThisProcess returns what this process has used, without its children.
func OfThisProcess() (Usage, error) {
	u, err := resourceUsage(syscall.RUSAGE_SELF)
	if err != nil {
		return u, err
	}
	now, err := OfProcess(os.Getpid())
	u.Memory = now.Memory
	return u, err
}

// OfChildren returns what the ended children of this process and their children have used:
// the CPU time of all, and the largest memory of one of them, which on Linux is at least that
// of this process when it started the child.
func OfChildren() (Usage, error) { return resourceUsage(syscall.RUSAGE_CHILDREN) }

func resourceUsage(who int) (Usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(who, &r); err != nil {
		return Usage{}, os.NewSyscallError("getrusage", err)
	}
	u := Usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano()), Memory: int64(r.Maxrss)}
	if runtime.GOOS != "darwin" { // darwin counts bytes, others KiB
		u.Memory <<= 10
	}
	return u, nil
}
