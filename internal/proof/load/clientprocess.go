package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// clientProcess is the process of the clients, as its parent sees it.
type clientProcess struct {
	*childproc.Process
	stdin   io.WriteCloser
	answers chan *observation
}

func startClientProcess(o clientOptions) (*clientProcess, error) {
	cmd, err := proofkit.ChildCommand(clientsEnv, o)
	if err != nil {
		return nil, err
	}
	p := &clientProcess{answers: make(chan *observation, 1)}
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
			var o *observation
			if decoder.Decode(&o) != nil {
				return
			}
			p.answers <- o
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
	o, err := p.send(ctx, fmt.Sprint(disconnectCommand, " ", last))
	if err == nil && o == nil {
		err = errors.New("the clients sent no observation")
	}
	return o, err
}

func (p *clientProcess) send(ctx context.Context, command string) (*observation, error) {
	if _, err := fmt.Fprintln(p.stdin, command); err != nil {
		return nil, fmt.Errorf("send %q to the clients: %w", command, err)
	}
	select {
	case o := <-p.answers:
		return o, nil
	case <-p.Done():
		return nil, errors.New("the process of the clients ended")
	case <-time.After(time.Minute):
		return nil, errors.New("the clients did not answer within a minute")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// close ends the process.
func (p *clientProcess) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(p.stdin.Close(), p.Wait(ctx))
}
