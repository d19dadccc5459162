package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// workerPool has the worker processes, and the coordinators of the remote ones.
type workerPool struct {
	log          *progresslog.Log
	slots        []*slot // those with the database, then the remote ones
	coordinators []*slot
	dir          string        // of the worker logs
	addrs        []string      // of the servers
	ownHosts     bool          // each worker has a host name of its own
	keep         time.Duration // of finished tasks, by workers with the database
}

// addWorkers adds workers that connect to the servers, or remotely to the coordinators.
func (p *workerPool) addWorkers(n int) {
	for range n {
		number := len(p.slots)
		p.slots = append(p.slots, newSlot(p.log, workerName(number), func(n int) (*exec.Cmd, error) {
			return p.command(number, n)
		}))
	}
}

// addCoordinators adds the coordinators.
func (p *workerPool) addCoordinators() {
	for i := range coordinators {
		config := childConfig{Address: sessionURL(fmt.Sprintf("coordinator-%d", i+1), p.addrs...)}
		p.coordinators = append(p.coordinators, newSlot(p.log, workerName(firstCoordinator+i), func(int) (*exec.Cmd, error) {
			return proofkit.ChildCommand(coordinatorEnv, config)
		}))
	}
}

// addProxies puts a proxy in front of what each worker connects to.
func (p *workerPool) addProxies() (err error) {
	for i, s := range p.slots {
		servers := func() []string { return p.addrs }
		if isRemote(i) {
			servers = p.coordinatorAddrs
		}
		if s.proxy, err = newProxy(servers); err != nil {
			return err
		}
	}
	return nil
}

// coordinatorAddrs returns the addresses of the coordinators. Nobody listens at that of a killed one.
func (p *workerPool) coordinatorAddrs() (addrs []string) {
	for _, c := range p.coordinators {
		addrs = append(addrs, *c.addr.Load())
	}
	return addrs
}

// command returns the command of an incarnation of a worker.
func (p *workerPool) command(worker, n int) (*exec.Cmd, error) {
	c := childConfig{LogFile: p.logFile(worker, n)}
	addrs := p.addrs
	if proxy := p.slots[worker].proxy; proxy != nil {
		addrs = []string{proxy.addr()}
	}
	if isRemote(worker) {
		c.Coordinator, c.Key = "http://"+addrs[0], fmt.Sprintf("key-%d", worker+1)
	} else {
		c.Address, c.Keep = sessionURL(fmt.Sprintf("worker-%d", worker+1), addrs...), p.keep
	}
	if !p.ownHosts {
		return proofkit.ChildCommand(workerEnv, c)
	}
	return proofkit.ChildCommand(workerEnv, c, onHost(fmt.Sprintf("chaos-%d", worker+1))...)
}

// sessionURL returns the URL of the database on one of the servers, for a session of that name.
func sessionURL(name string, addrs ...string) string {
	return pgtest.TCPURL(database, addrs...) + "&application_name=" + sessionPrefix + name
}

// onHost returns the command that runs another command with a host name of its own.
func onHost(name string) []string {
	return []string{"unshare", "--uts", "--", "sh", "-c", `echo ` + name + ` >/proc/sys/kernel/hostname && exec "$@"`, "sh"}
}

// canOwnHostname reports whether this program may give a process a host name of its own.
func canOwnHostname() bool {
	command := append(onHost("chaos"), "true")
	return exec.Command(command[0], command[1:]...).Run() == nil
}

// all returns the slots of the workers and then those of the coordinators.
func (p *workerPool) all() []*slot { return slices.Concat(p.slots, p.coordinators) }

func (p *workerPool) logFile(worker, incarnation int) string {
	return filepath.Join(p.dir, fmt.Sprintf("worker-%d-%03d.jsonl", worker+1, incarnation+1))
}

// start starts the coordinators and then all workers, and returns when the workers are registered.
func (p *workerPool) start(ctx context.Context) error {
	for _, slots := range [][]*slot{p.coordinators, p.slots} {
		for _, s := range slots {
			if err := s.start(); err != nil {
				return err
			}
		}
		for _, s := range slots {
			if err := s.waitReady(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// readLogs reads the logs of all incarnations.
func (p *workerPool) readLogs() ([]workerLog, error) {
	var logs []workerLog
	for number, s := range p.slots {
		for n, i := range s.all() {
			entries, err := readLogFile(p.logFile(number, n))
			if err != nil {
				return nil, err
			}
			log := workerLog{worker: number, ended: i.ended, entries: entries}
			if killed := i.killed.Load(); killed != nil {
				log.killed = *killed
			}
			logs = append(logs, log)
		}
	}
	return logs, nil
}

// drain makes all workers end, waits for them, and then ends the coordinators. It returns the
// violations.
func (p *workerPool) drain() []string { return append(drainAll(p.slots), drainAll(p.coordinators)...) }

func drainAll(slots []*slot) []string {
	found := make([][]string, len(slots))
	var draining sync.WaitGroup
	for i, s := range slots {
		draining.Go(func() { found[i] = s.drain(0) })
	}
	draining.Wait()
	return slices.Concat(found...)
}

// close kills what still runs.
func (p *workerPool) close() {
	for _, s := range p.all() {
		s.close()
	}
}
