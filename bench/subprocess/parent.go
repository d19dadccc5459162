package subprocess

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// workers are those of another process.
type workers struct {
	process   *childproc.Process
	observe   func(harness.Observation)
	ready     chan struct{}
	submitted chan struct{}
	done      chan struct{} // closed when the process has ended and err is set
	err       error

	mu    sync.Mutex // one command at a time
	stdin io.WriteCloser
}

// Start starts a process with workers of the system. It returns when they are notified of new
// tasks. The program must call [RunIfChild] with the same system.
func Start(ctx context.Context, s harness.System, url string, o harness.Options) (harness.Workers, error) {
	cmd, err := proofkit.ChildCommand(configEnv, config{
		System: s.Name, URL: url, Slots: o.Slots, WorkTime: o.WorkTime, Stages: o.Stages, Observe: o.Observe != nil,
	})
	if err != nil {
		return nil, err
	}
	w := &workers{
		observe: o.Observe, ready: make(chan struct{}, 1), submitted: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if err := w.start(cmd); err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	select {
	case <-w.ready:
		return w, nil
	case <-w.done:
		return nil, errors.Join(errors.New("the process ended at once"), w.Stop(ctx))
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), w.Stop(context.WithoutCancel(ctx)))
	}
}

func (w *workers) start(cmd *exec.Cmd) error {
	records, childEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer childEnd.Close()
	cmd.ExtraFiles = []*os.File{childEnd} // recordsFD
	if w.stdin, err = cmd.StdinPipe(); err == nil {
		w.process, err = childproc.Start(cmd, childproc.Options{})
	}
	if err != nil {
		return errors.Join(err, records.Close())
	}
	go w.receive(records)
	return nil
}

// receive reads records until the process has ended.
func (w *workers) receive(records *os.File) {
	defer close(w.done)
	in := bufio.NewReaderSize(records, 64<<10)
	record := make([]byte, recordSize)
	for {
		if _, err := io.ReadFull(in, record); err != nil {
			if !errors.Is(err, io.EOF) {
				w.err = fmt.Errorf("receive observations: %w", err)
			}
			break
		}
		switch o := decode(record); o.Kind {
		case ready:
			w.ready <- struct{}{}
		case submitted:
			w.submitted <- struct{}{}
		default:
			w.observe(o)
		}
	}
	records.Close()
	<-w.process.Done()
	if err := w.process.Err(); err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("workers in process %d: %w", w.process.PID(), err))
	}
}

// Submit submits a task in the process.
func (w *workers) Submit(ctx context.Context, task int64) error {
	return w.send(ctx, command{First: task})
}

// SubmitAll submits tasks in the process.
func (w *workers) SubmitAll(ctx context.Context, first int64, n int) error {
	if n <= 0 {
		return nil
	}
	return w.send(ctx, command{First: first, N: n})
}

// send sends a command and waits for its reply.
func (w *workers) send(ctx context.Context, c command) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := json.NewEncoder(w.stdin).Encode(c); err != nil {
		return fmt.Errorf("send command to process: %w", err)
	}
	select {
	case <-w.submitted:
		return nil
	case <-w.done:
		return errors.New("the process ended before it had submitted")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop tells the process to stop and waits for its end. It kills the process when ctx is done
// first.
func (w *workers) Stop(ctx context.Context) error {
	_ = json.NewEncoder(w.stdin).Encode(command{Stop: true}) // the process may have ended
	_ = w.stdin.Close()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		w.process.Kill()
		<-w.done
		return errors.Join(fmt.Errorf("stop process: %w", context.Cause(ctx)), w.err)
	}
}
