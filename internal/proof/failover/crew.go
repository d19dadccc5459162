package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/internal/progresslog"
)

// drainWithin is how long a worker may take to end when it is told to.
const drainWithin = 40 * time.Second

// crew is the worker processes. One that ends is started again, which counts
// against it.
type crew struct {
	*progresslog.Log
	self, address string
	ended         context.CancelFunc
	all           sync.WaitGroup
	restarted     atomic.Int32
}

// newCrew starts the processes and returns when all are at work.
func newCrew(ctx context.Context, t *progresslog.Log, n int, address string) (*crew, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &crew{Log: t, self: self, address: address, ended: cancel}
	ready := make(chan struct{}, n)
	for i := range n {
		c.all.Go(func() { c.employ(ctx, i+1, ready) })
	}
	for range n {
		select {
		case <-ready:
		case <-ctx.Done():
			c.close()
			return nil, context.Cause(ctx)
		case <-time.After(time.Minute):
			c.close()
			return nil, fmt.Errorf("not all of %d workers have begun to work", n)
		}
	}
	return c, nil
}

// close lets the workers drain, and returns how many had to be restarted.
func (c *crew) close() int {
	c.ended()
	c.all.Wait()
	return int(c.restarted.Load())
}

// employ keeps one worker running.
func (c *crew) employ(ctx context.Context, number int, ready chan<- struct{}) {
	for {
		err := c.process(ctx, number, ready)
		if ctx.Err() != nil {
			return
		}
		c.Logf("worker %d ended (%v) and is started again", number, err)
		c.restarted.Add(1)
		if pause(ctx, time.Second) != nil {
			return
		}
	}
}

// process runs one worker to its end, and repeats what it says.
func (c *crew) process(ctx context.Context, number int, ready chan<- struct{}) error {
	cmd := exec.CommandContext(ctx, c.self)
	cmd.Env = append(os.Environ(), workerEnv+"="+c.address)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.WaitDelay = drainWithin
	cmd.Cancel = func() error {
		_, err := io.WriteString(in, drain)
		return errors.Join(err, in.Close())
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		c.Logf("worker %d %s", number, lines.Text())
		if lines.Text() == atWork {
			select {
			case ready <- struct{}{}:
			default:
			}
		}
	}
	return cmd.Wait()
}
