package sandbox

import "golang.org/x/sys/unix"

const (
	arch = unix.AUDIT_ARCH_X86_64
	// foreignCalls is the first number of the x32 interface.
	foreignCalls = 0x40000000
)

// archDeniedCalls are denied calls that only this processor has.
var archDeniedCalls = []int{
	unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_MKNOD,
	unix.SYS_USELIB, unix.SYS__SYSCTL,
}
