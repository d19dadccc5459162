package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// clientProcess is the process of the clients, as its parent sees it.
type clientProcess struct {
	*proofkit.Child
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
	p.Child, err = proofkit.StartChild(cmd, proofkit.ChildOptions{OnStdout: func(line string) {
		var m message
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			m.Error = err.Error()
		}
		p.messages <- m
	}})
	return p, err
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
	if _, err := fmt.Fprintln(p.Stdin, command); err != nil {
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
func (p *clientProcess) close() { p.Stop(time.Minute, nil) }
