package transcodebench

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// childrenUsage returns the CPU time of the ended children of this process and of their
// children, and the largest peak of one of them, which on Linux is at least that of this
// process when it started the child.
func childrenUsage() (proofkit.Usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &r); err != nil {
		return proofkit.Usage{}, os.NewSyscallError("getrusage", err)
	}
	u := proofkit.Usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano()), Peak: int64(r.Maxrss)}
	if runtime.GOOS != "darwin" { // darwin counts bytes, others KiB
		u.Peak <<= 10
	}
	return u, nil
}
