package proofkit

import (
	"os"
	"runtime"
	"syscall"
	"time"
)

// Usage is what processes have used. Memory is in bytes.
type Usage struct {
	CPU       time.Duration // of all threads, in user and in system mode
	Peak      int64         // resident memory, at most so far; now where the system keeps no peak
	Resident  int64         // memory now
	Anonymous int64         // the part of it that is not backed by files; 0 where the system does not say
}

// ChildrenUsage returns the CPU time of the ended children of this process and of their
// children, and the largest peak of one of them, which on Linux is at least that of this
// process when it started the child.
func ChildrenUsage() (Usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &r); err != nil {
		return Usage{}, os.NewSyscallError("getrusage", err)
	}
	u := Usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano()), Peak: int64(r.Maxrss)}
	if runtime.GOOS != "darwin" { // darwin counts bytes, others KiB
		u.Peak <<= 10
	}
	return u, nil
}
