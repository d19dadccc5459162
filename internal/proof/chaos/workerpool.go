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

// workerPool has the worker processes, and the coordinators of the remote ones.
type workerPool struct {
	slots        []*workerSlot // those with the database, then the remote ones
	coordinators []*coordinatorSlot
	dir          string        // of the worker logs
	addrs        []string      // of the servers
	ownHosts     bool          // each worker has a host name of its own
	keep         time.Duration // of finished tasks, by workers with the database
}

// workerSlot runs one worker, and has its connection to the server or to the coordinators.
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
	for range size {
		p.addSlot(log)
	}
	return p
}

func (p *workerPool) addSlot(log *progresslog.Log) {
	s := &workerSlot{number: len(p.slots), registered: make(chan struct{})}
	s.log, s.name = log, workerName(s.number)
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

// addRemote adds the remote workers and their coordinators. There must be as many workers with the
// database as the constant says.
func (p *workerPool) addRemote(log *progresslog.Log) {
	p.coordinators = newCoordinatorSlots(log, p.addrs[0])
	for range remoteWorkers {
		p.addSlot(log)
	}
}

// coordinatorAddrs returns the addresses of the coordinators. Nobody listens at that of a killed one.
func (p *workerPool) coordinatorAddrs() (addrs []string) {
	for _, c := range p.coordinators {
		addrs = append(addrs, *c.addr.Load())
	}
	return addrs
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
	if isRemote(s.number) {
		c.Coordinator, c.Key = "http://"+s.proxy.addr, fmt.Sprintf("key-%d", s.number+1)
	} else {
		c.Address = sessionURL(fmt.Sprintf("worker-%d", s.number+1), addrs...)
		c.Keep = p.keep
	}
	if p.ownHosts {
		prefix, c.Host = append(prefix, ownHostname...), fmt.Sprintf("chaos-%d", s.number+1)
	}
	return proofkit.ChildCommand(workerEnv, c, prefix...)
}

// addProxies puts the network namespace in front of one worker, if there is one, and a proxy in
// front of each of the others.
func (p *workerPool) addProxies(n *networkNamespace) (err error) {
	for i, s := range p.slots {
		servers := func() []string { return p.addrs }
		if isRemote(i) {
			servers = p.coordinatorAddrs
		}
		if i == networkedWorker && n != nil {
			s.network = n
		} else if s.proxy, err = newProxy(servers); err != nil {
			return err
		}
	}
	return nil
}

// all returns the slots of the workers and then those of the coordinators.
func (p *workerPool) all() (all []*slot) {
	for _, s := range p.slots {
		all = append(all, &s.slot)
	}
	for _, c := range p.coordinators {
		all = append(all, &c.slot)
	}
	return all
}

func (p *workerPool) logFile(worker, incarnation int) string {
	return filepath.Join(p.dir, fmt.Sprintf("worker-%d-%03d.jsonl", worker+1, incarnation+1))
}

// start starts the coordinators and all workers, and returns when the workers are registered.
func (p *workerPool) start(ctx context.Context) error {
	for _, c := range p.coordinators {
		if err := c.start(); err != nil {
			return err
		}
		if err := c.waitUntilListening(ctx); err != nil {
			return err
		}
	}
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
			logs = append(logs, workerLog{
				worker: s.number, ended: i.ended, killed: i.killed, entries: entries,
			})
		}
	}
	return logs, nil
}

// drain tells all workers to end, waits for them, and then ends the coordinators. It returns the
// violations.
func (p *workerPool) drain() []string {
	all := p.all()
	return append(drainAll(all[:len(p.slots)]), drainAll(all[len(p.slots):])...)
}

func drainAll(slots []*slot) (violations []string) {
	var mu sync.Mutex
	var draining sync.WaitGroup
	for _, s := range slots {
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
	for _, s := range p.all() {
		s.close()
	}
	for _, s := range p.slots {
		if s.proxy != nil {
			s.proxy.close()
		}
	}
}

// sessionURL returns the URL of the database on one of the servers, for a session of that name.
func sessionURL(name string, addrs ...string) string {
	return postgres.TCPURL(database, addrs...) + "&application_name=" + sessionPrefix + name
}
