package media

import (
	"fmt"
	"os"
	"syscall"
)

// oomScore makes the kernel, short of memory, take a child and not the daemon
// or the database.
const oomScore = "500"

func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// soften makes the child give way to others. It is a courtesy: a host that
// forbids it loses nothing.
func soften(pid, nice int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(oomScore), 0)
	if nice > 0 {
		_ = syscall.Setpriority(syscall.PRIO_PGRP, pid, min(nice, 19))
	}
}
