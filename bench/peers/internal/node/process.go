package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// Process is a running app. It is the harness.Workers of a peer whose script handles
// requests.
type Process struct {
	*childproc.Process
	options  harness.Options
	errs     harness.ErrorList
	setReady func()
	ready    chan struct{} // closed when the app is notified of new tasks

	mu       sync.Mutex // guards what follows
	stdin    io.WriteCloser
	requests int64
	replies  map[int64]chan<- error
}

// startProcess starts a script and returns when it is ready.
func startProcess(ctx context.Context, cmd *exec.Cmd, c config, o harness.Options) (*Process, error) {
	p := &Process{options: o, ready: make(chan struct{}), replies: make(map[int64]chan<- error)}
	p.setReady = sync.OnceFunc(func() { close(p.ready) })
	cmd.Env = append(os.Environ(), "NODE_ENV=production", "NO_LOG_SUCCESS=1")
	cmd.Stdout = childproc.Lines(p.handleLine)
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.Process, err = childproc.Start(cmd, childproc.Options{}); err != nil {
		return nil, err
	}
	_ = p.write(c) // it fails if the process has ended, and then Done is closed
	if err := proofkit.WaitReady(ctx, p.Process, p.ready); err != nil {
		return nil, errors.Join(err, p.errs.Err())
	}
	return p, nil
}

// write sends a value as one line.
func (p *Process) write(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = p.stdin.Write(append(text, '\n'))
	return err
}

// message is a line that is not an observation.
type message struct {
	Ready   bool   `json:"ready"`
	Failure string `json:"failure"`
	Reply   int64  `json:"reply"`
	Error   string `json:"error"`
}

// handleLine handles a line of the output. One goroutine calls it.
func (p *Process) handleLine(text []byte) {
	now := time.Now()
	var o [3]int64
	var m message
	var err error
	if bytes.HasPrefix(text, []byte("[")) {
		err = json.Unmarshal(text, &o)
	} else {
		err = json.Unmarshal(text, &m)
	}
	switch {
	case err != nil:
		p.errs.Add(fmt.Errorf("line %q of the script: %w", text, err))
	case text[0] == '[':
		if p.options.Observe != nil {
			p.options.Observe(harness.Observation{
				Kind: harness.Kind(o[0]), Task: o[1], Stage: harness.Stage(o[2]), At: now,
			})
		}
	case m.Ready:
		p.setReady()
	case m.Failure != "":
		p.errs.Add(errors.New(endOf(m.Failure)))
	default:
		p.handleReply(m)
	}
}

func (p *Process) handleReply(m message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reply, ok := p.replies[m.Reply]
	if !ok {
		return
	}
	delete(p.replies, m.Reply)
	if m.Error != "" {
		reply <- errors.New(m.Error)
		return
	}
	reply <- nil
}

// Submit asks the process to submit a task.
func (p *Process) Submit(ctx context.Context, task int64) error { return p.SubmitAll(ctx, task, 1) }

// SubmitAll asks the process to submit n tasks, numbered from first.
func (p *Process) SubmitAll(ctx context.Context, first int64, n int) error {
	reply := make(chan error, 1)
	if err := p.request(first, n, reply); err != nil {
		return errors.Join(err, p.endedError())
	}
	select {
	case err := <-reply:
		return err
	case <-p.Done():
		return p.endedError()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *Process) request(first int64, n int, reply chan<- error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests++
	p.replies[p.requests] = reply
	return p.write(struct {
		Request int64 `json:"request"`
		First   int64 `json:"first"`
		N       int   `json:"n"`
	}{p.requests, first, n})
}

// endedError returns nil while the process runs.
func (p *Process) endedError() error {
	select {
	case <-p.Done():
		return errors.Join(childproc.ErrEnded, p.Err())
	default:
		return nil
	}
}

// Stop tells the process to end and waits for it. When ctx is done first, it kills the
// process. It returns the errors that the script reported.
func (p *Process) Stop(ctx context.Context) error {
	err := p.endedError()
	p.mu.Lock()
	_ = p.stdin.Close() // an error only repeats that the process has ended
	p.mu.Unlock()
	if err == nil {
		err = p.Wait(ctx)
	}
	return errors.Join(err, p.errs.Err())
}
