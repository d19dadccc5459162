//go:build unix

package media

import (
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// groupExitTimeout is how long the last processes of a killed group may take to be
// gone. One that hangs in the kernel takes longer, and nobody can change that.
const groupExitTimeout = time.Second

// processGroup is a child's process group, the only one of its session. It is killed as a whole: ffmpeg told to
// stop politely would finish its playlists as if the source ended there, and a
// script that stands in for ffmpeg may have started others.
type processGroup struct {
	cmd *exec.Cmd

	mu     sync.Mutex
	reaped bool // the leader's number may be somebody else's by now
}

// newProcessGroup gives the child a session and so a process group of its own, which a
// cancelled context kills. The session is for the scheduler's sake, see
// softenSession.
func newProcessGroup(cmd *exec.Cmd) *processGroup {
	g := &processGroup{cmd: cmd}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	setDeathSignal(cmd.SysProcAttr)
	cmd.Cancel = g.kill
	return g
}

func (g *processGroup) kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reaped {
		return os.ErrProcessDone
	}
	return syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
}

// wait waits for the leader's end and puts one to the others, too, before its
// number is free for another process.
func (g *processGroup) wait() error {
	if waitForExit(g.cmd.Process.Pid) {
		_ = g.kill() // as a rule there is nobody left
	}
	err := g.cmd.Wait()
	g.mu.Lock()
	g.reaped = true
	g.mu.Unlock()
	for began := time.Now(); time.Since(began) < groupExitTimeout; time.Sleep(time.Millisecond) {
		if errors.Is(syscall.Kill(-g.cmd.Process.Pid, 0), syscall.ESRCH) {
			break
		}
	}
	return err
}

// exitSignal is the signal that ended a process, if one did.
func exitSignal(state *os.ProcessState) syscall.Signal {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return ws.Signal()
	}
	return 0
}
