//go:build unix

package media

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup gives the child a process group of its own, which a cancelled
// context kills as a whole: ffmpeg told to stop politely would finish its
// playlists as if the source ended there.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

func signalName(state *os.ProcessState) string {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return ws.Signal().String()
	}
	return ""
}
