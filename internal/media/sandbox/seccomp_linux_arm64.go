package sandbox

import "golang.org/x/sys/unix"

const (
	arch = unix.AUDIT_ARCH_AARCH64
	// foreignCalls is above all numbers: there is no other interface.
	foreignCalls = 0x40000000
)

// archDeniedCalls are denied calls that only this processor has.
var archDeniedCalls []int
