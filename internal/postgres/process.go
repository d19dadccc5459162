package postgres

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
)

const (
	// fastStopTimeout is how long a server may take to write everything to disk.
	// After that it stops without, and recovers at its next start.
	fastStopTimeout = 30 * time.Second
	// immediateStopTimeout is how long the second way may take. The server kills
	// its own children after five seconds.
	immediateStopTimeout = 15 * time.Second
	// adoptedPollInterval is the time between two checks of an adopted server,
	// which is no child of this process and so cannot be waited for.
	adoptedPollInterval = 100 * time.Millisecond
)

// process is a running server: a child, or one that another process has started.
type process struct {
	child  *childproc.Process // nil: adopted
	handle *os.Process        // of an adopted server
	ended  <-chan struct{}    // closed when the server is gone
	quit   chan struct{}      // ends the polling of an adopted server
}

// startProcess starts a server, which outlives this process if others use it. The
// child is reaped even then: as a zombie, it would look alive to every later
// server.
func startProcess(cmd *exec.Cmd) (*process, error) {
	child, err := childproc.Start(cmd, childproc.Options{Session: true, OutlivesParent: true})
	if err != nil {
		return nil, err
	}
	return &process{child: child, ended: child.Done()}, nil
}

// adoptProcess polls a server of another process until the server ends or release
// is called. It returns nil if there is no such process.
func adoptProcess(pid int) *process {
	handle, err := os.FindProcess(pid)
	if err != nil || !isAlive(handle) {
		return nil
	}
	ended := make(chan struct{})
	p := &process{handle: handle, ended: ended, quit: make(chan struct{})}
	go func() {
		defer close(ended)
		tick := time.NewTicker(adoptedPollInterval)
		defer tick.Stop()
		for isAlive(handle) {
			select {
			case <-tick.C:
			case <-p.quit:
				return
			}
		}
	}()
	return p
}

// isAlive is also true for a zombie, and for a process of another user.
func isAlive(p *os.Process) bool {
	err := p.Signal(syscall.Signal(0))
	return err == nil || os.IsPermission(err)
}

func (p *process) pid() int {
	if p.child != nil {
		return p.child.PID()
	}
	return p.handle.Pid
}

// exitReason describes how the server ended, once ended is closed.
func (p *process) exitReason() string {
	if p.child != nil {
		return p.child.State().String()
	}
	return "the reason is unknown, because another process started it"
}

// release ends the polling. The server continues.
func (p *process) release() {
	if p.child == nil {
		close(p.quit)
		<-p.ended
	}
}

// stop stops the server and waits for its end. It reports whether the server is
// gone.
func (p *process) stop() bool {
	send := func(sig syscall.Signal) { _ = p.handle.Signal(sig) } // the server may have just ended
	if p.child != nil {
		send = func(sig syscall.Signal) { _ = p.child.Signal(sig) }
	}
	for _, step := range []struct {
		signal  syscall.Signal
		timeout time.Duration
	}{{syscall.SIGINT, fastStopTimeout}, {syscall.SIGQUIT, immediateStopTimeout}} {
		send(step.signal)
		timer := time.NewTimer(step.timeout)
		select {
		case <-p.ended:
			timer.Stop()
			return true
		case <-timer.C:
		}
	}
	return false
}
