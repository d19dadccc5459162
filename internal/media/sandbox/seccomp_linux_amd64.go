package sandbox

import "golang.org/x/sys/unix"

const (
	arch = unix.AUDIT_ARCH_X86_64
	// foreignCalls is where the numbers of the x32 interface begin.
	foreignCalls = 0x40000000
)

// deniedHere are the calls that only this processor has.
var deniedHere = []int{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_MKNOD, unix.SYS_USELIB, unix.SYS__SYSCTL}
