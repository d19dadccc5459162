package system

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// configEnv is the variable with the child's config, as JSON.
const configEnv = "CUELIGHT_BENCH_WORKERS"

// config is what a child runs.
type config struct {
	System, URL string
	Options     Options
}

// command is a line on the child's standard input. If the input ends without Stop, the
// parent was killed.
type command struct {
	First int64
	N     int // tasks for SubmitAll; 0 for Submit
	Stop  bool
}

// Replies of the child. They use the encoding of observations.
const (
	ready     = Kind(100) // the workers are notified of new tasks
	submitted = Kind(101) // a command is done
	last      = Kind(102) // not sent: no observations follow
)

// recordSize is the size of an encoded observation: kind, stage, task, time in nanoseconds.
const recordSize = 1 + 1 + 8 + 8

func encode(b []byte, o Observation) []byte {
	b = append(b, byte(o.Kind), byte(o.Stage))
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Task))
	return binary.LittleEndian.AppendUint64(b, uint64(o.At.UnixNano()))
}

func decode(b []byte) Observation {
	return Observation{
		Kind: Kind(b[0]), Stage: Stage(b[1]),
		Task: int64(binary.LittleEndian.Uint64(b[2:])),
		At:   time.Unix(0, int64(binary.LittleEndian.Uint64(b[10:]))),
	}
}

// process is the workers of another process.
type process struct {
	child     *childproc.Process
	observe   func(Observation)
	ready     chan struct{}
	submitted chan struct{}
	done      chan struct{} // closed when the process has ended and err is set
	err       error

	mu    sync.Mutex // one command at a time
	stdin io.WriteCloser
}

// StartProcess starts a process with workers of the system: this program again, which must call [RunIfChild] with the same
// system. It returns when they are notified of new tasks.
//
// The process sends its observations through a pipe, with the time at which they happened, by the wall clock that both
// share. Those of several processes may arrive in another order. All have arrived when Stop returns. The process ends with
// this one, even if that is killed.
func StartProcess(ctx context.Context, s System, url string, o Options) (Workers, error) {
	cmd, err := proofkit.ChildCommand(configEnv, config{System: s.Name(), URL: url, Options: o})
	if err != nil {
		return nil, err
	}
	p := &process{
		observe: o.Observe, ready: make(chan struct{}, 1), submitted: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if err := p.start(cmd); err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	select {
	case <-p.ready:
		return p, nil
	case <-p.done:
		return nil, errors.Join(errors.New("the process ended at once"), p.Stop(ctx))
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), p.Stop(context.WithoutCancel(ctx)))
	}
}

func (p *process) start(cmd *exec.Cmd) error {
	records, childEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer childEnd.Close()
	cmd.ExtraFiles = []*os.File{childEnd} // recordsFD
	if p.stdin, err = cmd.StdinPipe(); err == nil {
		p.child, err = childproc.Start(cmd, childproc.Options{})
	}
	if err != nil {
		return errors.Join(err, records.Close())
	}
	go p.receive(records)
	return nil
}

// receive reads records until the process has ended.
func (p *process) receive(records *os.File) {
	defer close(p.done)
	in := bufio.NewReaderSize(records, 64<<10)
	record := make([]byte, recordSize)
	for {
		if _, err := io.ReadFull(in, record); err != nil {
			if !errors.Is(err, io.EOF) {
				p.err = fmt.Errorf("receive observations: %w", err)
			}
			break
		}
		switch o := decode(record); o.Kind {
		case ready:
			p.ready <- struct{}{}
		case submitted:
			p.submitted <- struct{}{}
		default:
			p.observe(o)
		}
	}
	records.Close()
	<-p.child.Done()
	if err := p.child.Err(); err != nil {
		p.err = errors.Join(p.err, fmt.Errorf("workers in process %d: %w", p.child.PID(), err))
	}
}

// Submit submits a task in the process.
func (p *process) Submit(ctx context.Context, task int64) error {
	return p.send(ctx, command{First: task})
}

// SubmitAll submits tasks in the process.
func (p *process) SubmitAll(ctx context.Context, first int64, n int) error {
	if n == 0 {
		return nil
	}
	return p.send(ctx, command{First: first, N: n})
}

// send sends a command and waits for its reply.
func (p *process) send(ctx context.Context, c command) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := json.NewEncoder(p.stdin).Encode(c); err != nil {
		return fmt.Errorf("send command to process: %w", err)
	}
	select {
	case <-p.submitted:
		return nil
	case <-p.done:
		return errors.New("the process ended before it had submitted")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop tells the process to stop and waits for its end. It kills the process when ctx is done
// first.
func (p *process) Stop(ctx context.Context) error {
	_ = json.NewEncoder(p.stdin).Encode(command{Stop: true}) // the process may have ended
	_ = p.stdin.Close()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.child.Kill()
		<-p.done
		return errors.Join(fmt.Errorf("stop process: %w", context.Cause(ctx)), p.err)
	}
}
