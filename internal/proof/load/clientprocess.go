package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
)

// clientProcess is the process of the clients, as its parent sees it.
type clientProcess struct {
	*childproc.Process
	stdin    io.WriteCloser
	messages chan message
}

func startClientProcess(o clientOptions) (*clientProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	p := &clientProcess{messages: make(chan message, 1)}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), clientsEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, writer := io.Pipe() // an observation is too long for a line reader
	cmd.Stdout = writer
	if p.Process, err = childproc.Start(cmd, childproc.Options{Session: true}); err != nil {
		return nil, err
	}
	go func() {
		<-p.Done()
		writer.Close()
	}()
	go func() {
		for decoder := json.NewDecoder(stdout); ; {
			var m message
			if decoder.Decode(&m) != nil {
				return
			}
			p.messages <- m
		}
	}()
	return p, nil
}

// connect starts the clients, and returns when all streams are open.
func (p *clientProcess) connect(ctx context.Context) error {
	_, err := p.send(ctx, connectCommand)
	return err
}

// disconnect ends the clients when they have received an event.
func (p *clientProcess) disconnect(ctx context.Context, last int64) (*observation, error) {
	m, err := p.send(ctx, fmt.Sprint(disconnectCommand, " ", last))
	if err == nil && m.Observation == nil {
		err = errors.New("the clients sent no observation")
	}
	return m.Observation, err
}

func (p *clientProcess) send(ctx context.Context, command string) (message, error) {
	if _, err := fmt.Fprintln(p.stdin, command); err != nil {
		return message{}, fmt.Errorf("send %q to the clients: %w", command, err)
	}
	select {
	case m := <-p.messages:
		if m.Error != "" {
			return m, fmt.Errorf("the clients: %s", m.Error)
		}
		return m, nil
	case <-p.Done():
		return message{}, errors.New("the process of the clients ended")
	case <-time.After(time.Minute):
		return message{}, errors.New("the clients did not answer within a minute")
	case <-ctx.Done():
		return message{}, context.Cause(ctx)
	}
}

// close ends the process.
func (p *clientProcess) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(p.stdin.Close(), p.Wait(ctx))
}
