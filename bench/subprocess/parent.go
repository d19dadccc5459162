package subprocess

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/cuelight/cuelight/bench/harness"
)

// crew is one in another process.
type crew struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	out     *os.File
	said    bytes.Buffer // on standard error
	observe func(harness.Observation)

	ready     chan struct{}
	submitted chan struct{}
	ended     chan struct{} // closed when the process is gone, and err is there
	err       error

	mu sync.Mutex // one command at a time
}

// Start starts a process which is a crew of the contestant, and returns when it
// hears of new tasks. Its program must call [Main] with the same contestant.
func Start(ctx context.Context, who harness.System, url string, o harness.Options) (harness.Workers, error) {
	text, err := json.Marshal(order{
		Contestant: who.Name(), URL: url, Slots: o.Slots, Work: o.WorkTime, Only: o.Stages, Observe: o.Observe != nil,
	})
	if err != nil {
		return nil, err
	}
	c := &crew{
		observe: o.Observe, ready: make(chan struct{}, 1), submitted: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	if err := c.launch(string(text)); err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	select {
	case <-c.ready:
		return c, nil
	case <-c.ended:
		return nil, errors.Join(errors.New("the process ended at once"), c.Stop(ctx))
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), c.Stop(context.WithoutCancel(ctx)))
	}
}

func (c *crew) launch(text string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	out, to, err := os.Pipe()
	if err != nil {
		return err
	}
	defer to.Close()
	c.out = out
	c.cmd = exec.Command(self)
	c.cmd.Env = append(os.Environ(), crewEnv+"="+text)
	c.cmd.ExtraFiles = []*os.File{to} // pipeFD
	c.cmd.Stderr = &c.said
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return errors.Join(err, out.Close())
	}
	if err := c.cmd.Start(); err != nil {
		return errors.Join(err, out.Close())
	}
	go c.listen()
	return nil
}

// listen takes in the records until there are no more, and the process is gone.
func (c *crew) listen() {
	defer close(c.ended)
	in := bufio.NewReaderSize(c.out, 64<<10)
	record := make([]byte, recordSize)
	for {
		if _, err := io.ReadFull(in, record); err != nil {
			if !errors.Is(err, io.EOF) {
				c.err = fmt.Errorf("hear of a crew: %w", err)
			}
			break
		}
		switch m := decode(record); m.Kind {
		case ready:
			c.ready <- struct{}{}
		case submitted:
			c.submitted <- struct{}{}
		default:
			c.observe(m)
		}
	}
	c.out.Close()
	if err := c.cmd.Wait(); err != nil {
		c.err = errors.Join(c.err, fmt.Errorf("crew in process %d: %w: %s", c.cmd.Process.Pid, err, strings.TrimSpace(c.said.String())))
	}
}

// Submit has the process submit a task.
func (c *crew) Submit(ctx context.Context, task int64) error {
	return c.command(ctx, command{First: task})
}

// SubmitAll has the process submit tasks.
func (c *crew) SubmitAll(ctx context.Context, first int64, n int) error {
	if n <= 0 {
		return nil
	}
	return c.command(ctx, command{First: first, N: n})
}

func (c *crew) command(ctx context.Context, what command) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := json.NewEncoder(c.in).Encode(what); err != nil {
		return fmt.Errorf("tell process to submit: %w", err)
	}
	select {
	case <-c.submitted:
		return nil
	case <-c.ended:
		return errors.New("the process ended before it had submitted")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stop lets the process end, and returns when it has. When ctx is done before
// that it is killed.
func (c *crew) Stop(ctx context.Context) error {
	_ = json.NewEncoder(c.in).Encode(command{Stop: true}) // it may be gone already
	_ = c.in.Close()
	select {
	case <-c.ended:
		return c.err
	case <-ctx.Done():
		_ = c.cmd.Process.Kill()
		<-c.ended
		return errors.Join(fmt.Errorf("stop process: %w", context.Cause(ctx)), c.err)
	}
}
