package childproc

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

func setDeathSignal(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// waitExit waits until a child has ended and leaves it unreaped, so that its
// number stays its own. It returns false where that is not possible.
func waitExit(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return err == nil
		}
	}
}
