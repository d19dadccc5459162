package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// configEnv is the variable with the child's config, as JSON.
const configEnv = "CUELIGHT_BENCH_WORKERS"

// config is what a child runs.
type config struct {
	System, URL string
	Options     Options
}

// process is the workers of another process, which answers calls.
type process struct {
	child   *childproc.Process
	answers *os.File
	client  *rpc.Client
	observe func(Observation)
	done    chan struct{} // closed when no more observations arrive
}

// conn is the ends of two pipes.
type conn struct {
	io.Reader
	io.WriteCloser
}

// StartProcess starts a process with workers of the system: this program again, which must call [RunIfChild] with the same
// system. It returns when they are notified of new tasks.
//
// The process reports its observations with the time at which they happened, by the wall clock that both
// share. Those of several processes may arrive in another order. All have arrived when Stop returns. The process ends with
// this one, even if that is killed.
func StartProcess(ctx context.Context, s System, url string, o Options) (Workers, error) {
	cmd, err := proofkit.ChildCommand(configEnv, config{System: s.Name(), URL: url, Options: o})
	if err != nil {
		return nil, err
	}
	answers, childEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{childEnd} // answersFD
	p := &process{answers: answers, observe: o.Observe, done: make(chan struct{})}
	calls, err := cmd.StdinPipe()
	if err == nil {
		p.child, err = childproc.Start(cmd, childproc.Options{})
	}
	childEnd.Close()
	if err != nil {
		return nil, errors.Join(err, answers.Close())
	}
	p.client = rpc.NewClient(conn{answers, calls})
	err = p.call(ctx, "Start", 0, 0)
	go p.receive()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start workers in a process: %w", err), p.Stop(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// receive asks for observations until there are no more.
func (p *process) receive() {
	defer close(p.done)
	for {
		var all []int64
		if err := p.client.Call("Workers.Observations", 0, &all); err != nil {
			return
		}
		for o := range slices.Chunk(all, 4) {
			p.observe(Observation{Task: o[0], Stage: Stage(o[1]), Kind: Kind(o[2]), At: time.Unix(0, o[3])})
		}
	}
}

// call calls a method of the child. An error because the child has ended has the reason.
func (p *process) call(ctx context.Context, method string, first int64, n int) error {
	call := p.client.Go("Workers."+method, [2]int64{first, int64(n)}, new(int), nil)
	select {
	case <-call.Done:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	var answer rpc.ServerError
	if call.Error == nil || errors.As(call.Error, &answer) {
		return call.Error
	}
	return errors.Join(call.Error, p.child.Wait(ctx))
}

// Submit submits a task in the process.
func (p *process) Submit(ctx context.Context, task int64) error {
	return p.call(ctx, "Submit", task, 1)
}

// SubmitAll submits tasks in the process.
func (p *process) SubmitAll(ctx context.Context, first int64, n int) error {
	return p.call(ctx, "Submit", first, n)
}

// Stop stops the workers and waits for the end of the process. It kills the process when ctx is done
// first.
func (p *process) Stop(ctx context.Context) error {
	err := p.call(ctx, "Stop", 0, 0)
	if errors.Is(err, rpc.ErrShutdown) {
		err = nil // it has ended, and Wait says why
	}
	if ctx.Err() != nil {
		p.child.Kill()
	}
	<-p.done
	_ = p.client.Close() // the process may have ended
	return errors.Join(err, p.child.Wait(ctx), p.answers.Close())
}

// answersFD is the descriptor for answers. Systems may write to standard output.
const answersFD = 3

// RunIfChild runs the workers of one of the systems if [StartProcess] started this process, and then ends the process.
func RunIfChild(systems []System) {
	proofkit.RunIfChild(configEnv, func(c config) error {
		syscall.CloseOnExec(answersFD) // children of the workers must not keep it open
		return serve(systems, c, conn{os.Stdin, os.NewFile(answersFD, "answers")})
	})
}

// serve answers calls until there are no more, because the workers have stopped or the parent was killed.
func serve(systems []System, c config, to io.ReadWriteCloser) error {
	i := slices.IndexFunc(systems, func(s System) bool { return s.Name() == c.System })
	if i < 0 {
		return fmt.Errorf("unknown system %q", c.System)
	}
	s := &server{system: systems[i], config: c, news: make(chan struct{}, 1)}
	calls := rpc.NewServer()
	if err := calls.RegisterName("Workers", s); err != nil {
		return err
	}
	calls.ServeConn(to)
	return nil
}

// server is what a child answers. Its exported methods are called by the parent.
type server struct {
	system  System
	config  config
	workers Workers

	mu       sync.Mutex
	observed []int64 // not yet asked for
	stopped  bool
	news     chan struct{} // has a value if there may be some
}

// Start starts the workers.
func (s *server) Start([2]int64, *int) (err error) {
	s.config.Options.Observe = s.observe
	s.workers, err = s.system.Start(context.Background(), s.config.URL, s.config.Options)
	return err
}

func (s *server) observe(o Observation) {
	s.mu.Lock()
	s.observed = append(s.observed, o.Task, int64(o.Stage), int64(o.Kind), o.At.UnixNano())
	s.mu.Unlock()
	s.signal()
}

func (s *server) signal() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// Submit submits a number of tasks from the first one on.
func (s *server) Submit(tasks [2]int64, _ *int) error {
	if tasks[1] == 1 {
		return s.workers.Submit(context.Background(), tasks[0])
	}
	return s.workers.SubmitAll(context.Background(), tasks[0], int(tasks[1]))
}

// Observations returns observations as soon as there are some, or none after a second. After the end of the workers, and of
// their observations, it is an error.
func (s *server) Observations(_ int, all *[]int64) error {
	select {
	case <-s.news:
	case <-time.After(time.Second):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	*all, s.observed = s.observed, nil
	if len(*all) == 0 && s.stopped {
		return errors.New("the workers have stopped")
	}
	return nil
}

// Stop stops the workers.
func (s *server) Stop([2]int64, *int) (err error) {
	if s.workers != nil {
		err = s.workers.Stop(context.Background())
	}
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.signal()
	return err
}
