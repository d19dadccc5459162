package sandbox

import "golang.org/x/sys/unix"

const (
	arch = unix.AUDIT_ARCH_AARCH64
	// foreignCalls: there are none, and no numbers up there.
	foreignCalls = 0x40000000
)

// deniedHere are the calls that only this processor has.
var deniedHere []int
