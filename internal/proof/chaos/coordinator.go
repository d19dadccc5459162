package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/stages/remote"
)

// coordinatorEnv makes this program a coordinator. It holds the coordinatorConfig as JSON.
const coordinatorEnv = "CUELIGHT_CHAOS_COORDINATOR"

// coordinatorConfig is what a coordinator process is started with.
type coordinatorConfig struct {
	Address string // URL of its database
}

// listeningPrefix begins the line that a coordinator prints when it accepts connections. The
// address follows.
const listeningPrefix = "listening at "

// coordinatorMain is the main function of a coordinator process. It serves remote workers until its
// standard input ends.
func coordinatorMain(c coordinatorConfig) error {
	ctx := untilInputEnds()
	pool, err := connect(ctx, c.Address)
	if err != nil {
		return err
	}
	defer pool.Close()
	var failed atomic.Bool
	coordinator := remote.NewCoordinator(remote.Options{
		Pool: pool, Pipeline: newPipeline(nil), Authenticate: keyOf,
		OnError: func(err error) {
			if isFailed := err != nil; failed.Swap(isFailed) != isFailed {
				fmt.Println(describeDatabase(err))
			}
		},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: coordinator}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer server.Close()
	serving.Go(func() { _ = server.Serve(listener) }) // it returns when the server is closed
	fmt.Println(listeningPrefix + listener.Addr().String())
	return coordinator.Run(ctx)
}

// describeDatabase describes a change of what a coordinator knows about its database.
func describeDatabase(err error) string {
	if err == nil {
		return "reached the database again"
	}
	return "lost the database: " + progresslog.Brief(err)
}

// keyOf returns the key of a request. Every remote worker has one of its own.
func keyOf(r *http.Request) (string, error) {
	key, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return "", errors.New("the request has no key")
	}
	return key, nil
}

// coordinatorSlot runs one coordinator. Each incarnation has another address, because a port that is
// free for a while may be taken by somebody else.
type coordinatorSlot struct {
	slot
	addr      atomic.Pointer[string] // of the last incarnation; set before listening is closed
	listening chan struct{}          // closed when the first incarnation listens
}

// newCoordinatorSlots makes slots for coordinators of one server.
func newCoordinatorSlots(log *progresslog.Log, server string) (all []*coordinatorSlot) {
	for i := range coordinators {
		c := &coordinatorSlot{listening: make(chan struct{})}
		c.log, c.name = log, coordinatorName(i)
		onFirst := sync.OnceFunc(func() { close(c.listening) })
		onLine := func(line []byte) {
			addr, ok := strings.CutPrefix(string(line), listeningPrefix)
			if !ok {
				log.Logf("%s %s", c.name, line)
				return
			}
			c.addr.Store(&addr)
			onFirst()
		}
		config := coordinatorConfig{Address: sessionURL(fmt.Sprintf("coordinator-%d", i+1), server)}
		c.command = func(int) (*exec.Cmd, error) {
			cmd, err := proofkit.ChildCommand(coordinatorEnv, config)
			if err == nil {
				cmd.Stdout = childproc.Lines(onLine)
			}
			return cmd, err
		}
		all = append(all, c)
	}
	return all
}

// waitUntilListening waits for the first incarnation.
func (c *coordinatorSlot) waitUntilListening(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case <-c.listening:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s does not listen: %w", c.name, context.Cause(ctx))
	}
}
