package node

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/work"
)

// Process is an app at work.
type Process struct {
	cmd     *exec.Cmd
	options harness.Options
	trouble *work.ErrorList
	stderr  tail
	heard   bool          // that it is ready
	ready   chan struct{} // closed when it hears of new tasks
	gone    chan struct{} // closed when it has ended, with
	err     error

	mu       sync.Mutex // for what follows, and lines to it
	stdin    io.WriteCloser
	stopping bool // stdin is closed
	requests int64
	waiting  map[int64]chan<- error
}

func newProcess(node, script string, o harness.Options, trouble *work.ErrorList) *Process {
	cmd := exec.Command(node, script)
	cmd.Dir = filepath.Dir(script)
	cmd.Env = append(os.Environ(), "NODE_ENV=production", "NO_LOG_SUCCESS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is not for it
	cmd.WaitDelay = time.Second
	p := &Process{
		cmd: cmd, options: o, trouble: trouble,
		ready: make(chan struct{}), gone: make(chan struct{}), waiting: make(map[int64]chan<- error),
	}
	cmd.Stderr = &p.stderr
	return p
}

// begin starts the process, and waits until it is ready.
func (p *Process) begin(ctx context.Context, c config) (err error) {
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go p.follow(stdout)
	first, err := line(c)
	if err == nil {
		_, err = p.stdin.Write(first)
	}
	if err != nil {
		err = errors.Join(err, p.kill())
		return errors.Join(p.err, err)
	}
	select {
	case <-p.ready:
		return nil
	case <-p.gone:
		return p.err
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.kill())
	}
}

var errEnded = errors.New("it has ended by itself")

// follow hears the process out.
func (p *Process) follow(stdout io.Reader) {
	defer close(p.gone)
	lines := bufio.NewScanner(stdout)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		p.hear(lines.Bytes())
	}
	err := lines.Err()
	if err != nil {
		_ = p.signal() // it must not wait for a reader for ever
	}
	err = errors.Join(err, p.cmd.Wait())
	if err != nil {
		err = fmt.Errorf("%w: %s", err, lastLines(p.stderr.String()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err = err; err == nil && !p.stopping {
		p.err = errEnded
	}
	for _, reply := range p.waiting {
		reply <- errEnded
	}
	p.waiting = nil
}

// message is what a line can be that is not a moment.
type message struct {
	Ready   bool   `json:"ready"`
	Trouble string `json:"trouble"`
	Reply   int64  `json:"reply"`
	Error   string `json:"error"`
}

func (p *Process) hear(text []byte) {
	at := time.Now()
	if bytes.HasPrefix(text, []byte("[")) {
		var m [3]int64
		if err := json.Unmarshal(text, &m); err != nil {
			p.trouble.Add(fmt.Errorf("unknown line %q: %w", text, err))
			return
		}
		if p.options.Observe != nil {
			p.options.Observe(harness.Observation{Kind: harness.Kind(m[0]), Task: m[1], Stage: harness.Stage(m[2]), At: at})
		}
		return
	}
	var m message
	switch err := json.Unmarshal(text, &m); {
	case err != nil:
		p.trouble.Add(fmt.Errorf("unknown line %q: %w", text, err))
	case m.Ready && !p.heard:
		p.heard = true
		close(p.ready)
	case m.Trouble != "":
		p.trouble.Add(errors.New(lastLines(m.Trouble)))
	default:
		p.reply(m)
	}
}

func (p *Process) reply(m message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reply, ok := p.waiting[m.Reply]
	if !ok {
		return
	}
	delete(p.waiting, m.Reply)
	if m.Error != "" {
		reply <- errors.New(m.Error)
		return
	}
	reply <- nil
}

// Submit asks the process to submit n tasks, numbered from first.
func (p *Process) Submit(ctx context.Context, first int64, n int) error {
	reply := make(chan error, 1)
	if err := p.send(first, n, reply); err != nil {
		return err
	}
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

type request struct {
	Request int64 `json:"request"`
	First   int64 `json:"first"`
	N       int   `json:"n"`
}

// line is a value as a line.
func line(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	return append(text, '\n'), err
}

func (p *Process) send(first int64, n int, reply chan<- error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting == nil {
		return errEnded
	}
	p.requests++
	text, err := line(request{p.requests, first, n})
	if err != nil {
		return err
	}
	p.waiting[p.requests] = reply
	if _, err := p.stdin.Write(text); err != nil {
		delete(p.waiting, p.requests)
		return err
	}
	return nil
}

// Stop tells the process to end, and waits until it has. When ctx is done before
// that, it is killed.
func (p *Process) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.stopping = true
	err := p.stdin.Close()
	p.mu.Unlock()
	select {
	case <-p.gone:
		return cmp.Or(p.err, err)
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.kill())
	}
}

// kill ends the process, and whatever it has started.
func (p *Process) kill() error {
	err := p.signal()
	<-p.gone
	return err
}

func (p *Process) signal() error {
	select {
	case <-p.gone:
		return nil // and its number may be another's
	default:
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 4096
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > most {
		t.text = append(t.text[:0], t.text[len(t.text)-most:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
