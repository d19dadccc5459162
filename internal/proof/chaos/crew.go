package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/progresslog"
)

// drainWithin is how long a worker may take to end when it is told to: its
// grace and its farewell.
const drainWithin = 45 * time.Second

// crew is the worker processes.
type crew struct {
	*progresslog.Log
	dir      string // for journals
	ownHosts bool   // each is on a host of its own, by name
	seats    [workers]*seat
	all      sync.WaitGroup

	mu      sync.Mutex
	closing bool
	wrong   []string // ends that nobody caused
}

// seat is a worker's place, in which one process follows the other.
type seat struct {
	crew    *crew
	number  int
	address string
	proxy   *proxy   // between it and the server, or
	network *network // the namespace it is in
	lives   []*life  // the last one is the present
}

// life is one worker process.
type life struct {
	*process
	worker  int
	journal string
	ready   chan struct{} // closed when it is registered
}

// newCrew makes the seats. server is where the server listens, for those who
// come by way of loopback, and by way of the network, if there is one.
func newCrew(t *progresslog.Log, dir string, server *pgserver.Server, n *network) (_ *crew, err error) {
	c := &crew{Log: t, dir: dir, ownHosts: mayOwnHosts()}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	for i := range c.seats {
		s := &seat{crew: c, number: i}
		c.seats[i] = s
		addr := server.Addr()
		if i == networked && n != nil {
			s.network, addr = n, n.address(addr)
		} else {
			if s.proxy, err = newProxy(addr); err != nil {
				return nil, err
			}
			addr = s.proxy.addr
		}
		s.address = pgserver.TCPURL(database, addr) + fmt.Sprintf("&application_name=%sworker-%d", ourSessions, i+1)
	}
	return c, nil
}

// begin starts all workers and returns when they are at work.
func (c *crew) begin(ctx context.Context) error {
	for _, s := range c.seats {
		if err := s.start(); err != nil {
			return err
		}
	}
	late, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, s := range c.seats {
		select {
		case <-s.present().ready:
		case <-late.Done():
			return fmt.Errorf("worker %d did not begin: %w", s.number+1, context.Cause(late))
		}
	}
	return nil
}

// start begins a new life, if nobody lives.
func (s *seat) start() error {
	c := s.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing || len(s.lives) > 0 && !s.lives[len(s.lives)-1].over() {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	l := &life{worker: s.number, ready: make(chan struct{})}
	l.journal = filepath.Join(c.dir, fmt.Sprintf("worker-%d-%03d.jsonl", s.number+1, len(s.lives)+1))
	cmd := exec.Command(self)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	cmd.Env = append(os.Environ(), roleEnv+"="+roleWorker, addressEnv+"="+s.address, journalEnv+"="+l.journal)
	if c.ownHosts {
		ownHost(cmd.SysProcAttr)
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=chaos-%d", hostEnv, s.number+1))
	}
	where := here
	if s.network != nil {
		where = s.network.inside
	}
	if l.process, err = startProcess(cmd, where, s.hear(l)); err != nil {
		return fmt.Errorf("start worker %d: %w", s.number+1, err)
	}
	s.lives = append(s.lives, l)
	c.all.Go(func() { s.watch(l) })
	return nil
}

// hear takes in what a worker says.
func (s *seat) hear(l *life) func(string) {
	var once sync.Once
	return func(line string) {
		if line != atWork {
			s.crew.Logf("worker %d %s", s.number+1, line)
		}
		once.Do(func() {
			if line == atWork {
				close(l.ready)
			}
		})
	}
}

// watch waits for the end of a life. One that nobody caused must not be.
func (s *seat) watch(l *life) {
	<-l.done
	if l.expected() {
		return
	}
	c := s.crew
	c.Logf("worker %d ended by itself: %v", s.number+1, l.err)
	c.mu.Lock()
	c.wrong = append(c.wrong, fmt.Sprintf("worker %d ended by itself: %v", s.number+1, l.err))
	c.mu.Unlock()
	if err := s.start(); err != nil {
		c.Logf("%v", err)
	}
}

func (p *process) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (s *seat) present() *life {
	s.crew.mu.Lock()
	defer s.crew.mu.Unlock()
	return s.lives[len(s.lives)-1]
}

// lives are those of all seats, in the order in which each seat had them.
func (c *crew) lives() []*life {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*life
	for _, s := range c.seats {
		if s != nil {
			all = append(all, s.lives...)
		}
	}
	return all
}

// drain tells all workers to end, and names those that did not end well.
func (c *crew) drain() []string {
	c.mu.Lock()
	c.closing = true
	wrong := c.wrong
	c.mu.Unlock()
	var mu sync.Mutex // of wrong
	var all sync.WaitGroup
	for _, s := range c.seats {
		l := s.present()
		all.Go(func() {
			if !l.over() && !l.end(drainWithin, nil) {
				mu.Lock()
				defer mu.Unlock()
				wrong = append(wrong, fmt.Sprintf("worker %d, told to end, did so with %v", s.number+1, l.err))
			}
		})
	}
	all.Wait()
	return wrong
}

// close ends what is left, without ado.
func (c *crew) close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	for _, l := range c.lives() {
		l.kill()
	}
	c.all.Wait()
	for _, s := range c.seats {
		if s != nil && s.proxy != nil {
			s.proxy.close()
		}
	}
}
