package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// crowdProcess is the crowd, seen from the program that started it.
type crowdProcess struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said chan told // closed when it has ended
}

func newCrowdProcess(o order) (*crowdProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	c := &crowdProcess{cmd: exec.Command(self), said: make(chan told)}
	c.cmd.Env = append(os.Environ(), crowdEnv+"="+string(text))
	c.cmd.Stderr = os.Stderr
	c.cmd.SysProcAttr = apart()
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.said)
		for said := json.NewDecoder(bufio.NewReader(out)); ; {
			var t told
			if said.Decode(&t) != nil {
				return
			}
			c.said <- t
		}
	}()
	return c, nil
}

func (c *crowdProcess) pid() int { return c.cmd.Process.Pid }

// come has the crowd look on, and returns when all do.
func (c *crowdProcess) come(ctx context.Context) error {
	_, err := c.tell(ctx, come)
	return err
}

// leave has the crowd go when all have been told of an event.
func (c *crowdProcess) leave(ctx context.Context, last int64) (*sighting, error) {
	t, err := c.tell(ctx, fmt.Sprint(goes, " ", last))
	if err == nil && t.Seen == nil {
		err = errors.New("the crowd has nothing to say")
	}
	return t.Seen, err
}

func (c *crowdProcess) tell(ctx context.Context, what string) (told, error) {
	if _, err := fmt.Fprintln(c.in, what); err != nil {
		return told{}, fmt.Errorf("tell the crowd to %s: %w", what, err)
	}
	select {
	case t, ok := <-c.said:
		if !ok {
			return t, errors.New("the crowd ended")
		}
		if t.Lost != "" {
			return t, fmt.Errorf("the crowd: %s", t.Lost)
		}
		return t, nil
	case <-time.After(time.Minute):
		return told{}, errors.New("the crowd does not answer")
	case <-ctx.Done():
		return told{}, context.Cause(ctx)
	}
}

// close ends it.
func (c *crowdProcess) close() error {
	err := c.in.Close()
	for range c.said { // what is on the way when the measuring ends early
	}
	return errors.Join(err, c.cmd.Wait())
}
