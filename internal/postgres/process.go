package postgres

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	// fastStop is how long a server may take to write everything down before
	// it is told to stop without; recovery then does it at the next start.
	fastStop = 30 * time.Second
	// hardStop is how long it may take after that. It kills its own children
	// after five seconds.
	hardStop = 15 * time.Second
	// watchEvery is how often an adopted server is looked at. It is nobody's
	// child here, so nothing tells when it ends.
	watchEvery = 100 * time.Millisecond
)

// process is a running server.
type process struct {
	handle *os.Process
	ended  chan struct{} // closed when it is gone
	how    string        // how it ended, once that is closed
	child  bool
	quit   chan struct{} // stops watching an adopted one
}

// launched takes over a command that was started. The goroutine lasts as long
// as the server, even when that is left to other users: somebody must take
// notice of a child's end, or it would remain as a zombie which every server
// after it takes for alive.
func launched(cmd *exec.Cmd) *process {
	p := &process{handle: cmd.Process, ended: make(chan struct{}), child: true}
	go func() {
		_ = cmd.Wait() // said better by the state
		p.how = cmd.ProcessState.String()
		close(p.ended)
	}()
	return p
}

// adopted watches somebody else's server until it ends or release is called.
// It returns nil if there is no such process.
func adopted(pid int) *process {
	handle, err := os.FindProcess(pid)
	if err != nil || !alive(handle) {
		return nil
	}
	p := &process{handle: handle, ended: make(chan struct{}), quit: make(chan struct{})}
	go func() {
		defer close(p.ended)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for alive(handle) {
			select {
			case <-tick.C:
			case <-p.quit:
				p.how = "no longer watched"
				return
			}
		}
		p.how = "not known how, for another process started it"
	}()
	return p
}

// alive also says yes to a zombie, and to a process that is not ours.
func alive(p *os.Process) bool {
	err := p.Signal(syscall.Signal(0))
	return err == nil || os.IsPermission(err)
}

// release stops watching; the server goes on.
func (p *process) release() {
	if !p.child {
		close(p.quit)
		<-p.ended
	}
}

// stop ends the server and waits for it. It reports whether it has gone.
func (p *process) stop() bool {
	for _, step := range []struct {
		sig  os.Signal
		wait time.Duration
	}{{syscall.SIGINT, fastStop}, {syscall.SIGQUIT, hardStop}} {
		if err := p.handle.Signal(step.sig); err != nil && p.child {
			// It has just ended; the goroutine is about to say so.
			step.wait = hardStop
		}
		timer := time.NewTimer(step.wait)
		select {
		case <-p.ended:
			timer.Stop()
			return true
		case <-timer.C:
		}
	}
	return false
}
