package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// workerPool has the worker processes.
type workerPool struct {
	slots    []*workerSlot
	dir      string   // of the worker logs
	addrs    []string // of the servers
	ownHosts bool     // each worker has a host name of its own
}

// workerSlot runs one worker, and has its connection to the server.
type workerSlot struct {
	slot
	number     int
	proxy      *proxy            // nil without a proxy
	network    *networkNamespace // nil without a namespace
	registered chan struct{}     // closed when the first incarnation is registered
}

// newWorkerPool makes slots that connect directly to the given servers.
func newWorkerPool(log *progresslog.Log, dir string, size int, addrs ...string) *workerPool {
	p := &workerPool{dir: dir, addrs: addrs, ownHosts: canOwnHostname()}
	for i := range size {
		s := &workerSlot{number: i, registered: make(chan struct{})}
		s.log, s.name = log, fmt.Sprintf("worker %d", i+1)
		register := sync.OnceFunc(func() { close(s.registered) })
		onLine := func(line []byte) {
			if string(line) == registeredLine {
				register()
				return
			}
			log.Logf("%s %s", s.name, line)
		}
		s.command = func(n int) (*exec.Cmd, error) {
			cmd, err := p.command(s, n)
			if err == nil {
				cmd.Stdout = childproc.Lines(onLine)
			}
			return cmd, err
		}
		p.slots = append(p.slots, s)
	}
	return p
}

// command returns the command of an incarnation of a worker.
func (p *workerPool) command(s *workerSlot, n int) (*exec.Cmd, error) {
	c := workerConfig{LogFile: p.logFile(s.number, n)}
	addrs := p.addrs
	var prefix []string
	switch {
	case s.network != nil:
		prefix = s.network.enter()
		addrs = []string{s.network.address(addrs[0])}
	case s.proxy != nil:
		addrs = []string{s.proxy.addr}
	}
	if p.ownHosts {
		prefix, c.Host = append(prefix, ownHostname...), fmt.Sprintf("chaos-%d", s.number+1)
	}
	c.Address = sessionURL(fmt.Sprintf("worker-%d", s.number+1), addrs...)
	return proofkit.ChildCommand(workerEnv, c, prefix...)
}

// addProxies puts the network namespace in front of one worker, if there is one, and a proxy in
// front of each of the others.
func (p *workerPool) addProxies(server string, n *networkNamespace) (err error) {
	for i, s := range p.slots {
		if i == networkedWorker && n != nil {
			s.network = n
		} else if s.proxy, err = newProxy(server); err != nil {
			return err
		}
	}
	return nil
}

func (p *workerPool) logFile(worker, incarnation int) string {
	return filepath.Join(p.dir, fmt.Sprintf("worker-%d-%03d.jsonl", worker+1, incarnation+1))
}

// start starts all workers and returns when they are registered.
func (p *workerPool) start(ctx context.Context) error {
	for _, s := range p.slots {
		if err := s.start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, s := range p.slots {
		select {
		case <-s.registered:
		case <-ctx.Done():
			return fmt.Errorf("%s did not register: %w", s.name, context.Cause(ctx))
		}
	}
	return nil
}

// readLogs reads the logs of all incarnations.
func (p *workerPool) readLogs() ([]workerLog, error) {
	var logs []workerLog
	for _, s := range p.slots {
		for n, i := range s.all() {
			entries, err := readLogFile(p.logFile(s.number, n))
			if err != nil {
				return nil, err
			}
			logs = append(logs, workerLog{worker: s.number, ended: i.ended, killed: i.killed, entries: entries})
		}
	}
	return logs, nil
}

// drain tells all workers to end, waits for them, and returns the violations.
func (p *workerPool) drain() (violations []string) {
	var mu sync.Mutex
	var draining sync.WaitGroup
	for _, s := range p.slots {
		draining.Go(func() {
			found := s.drain(0)
			mu.Lock()
			defer mu.Unlock()
			violations = append(violations, found...)
		})
	}
	draining.Wait()
	return violations
}

// close kills what still runs.
func (p *workerPool) close() {
	for _, s := range p.slots {
		s.close()
		if s.proxy != nil {
			s.proxy.close()
		}
	}
}

// sessionURL returns the URL of the database on one of the servers, for a session of that name.
func sessionURL(name string, addrs ...string) string {
	return postgres.TCPURL(database, addrs...) + "&application_name=" + sessionPrefix + name
}
