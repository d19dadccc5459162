package subprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/cuelight/cuelight/bench/harness"
)

// Called reports whether this process was started to be a crew.
func IsChild() bool { return os.Getenv(crewEnv) != "" }

// pipeFD is the descriptor of the pipe for records: standard output is for
// everybody.
const pipeFD = 3

// Main is such a process: it works until its standard input ends, and returns
// its exit code.
func Main(all []harness.System) int {
	signal.Ignore(os.Interrupt) // a Ctrl-C is for the program that started it
	syscall.CloseOnExec(pipeFD) // what the crew starts would keep it open
	pipe := os.NewFile(pipeFD, "records")
	err := work(context.Background(), all, os.Getenv(crewEnv), os.Stdin, pipe)
	if err = errors.Join(err, pipe.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func work(ctx context.Context, all []harness.System, text string, commands io.Reader, to io.Writer) (err error) {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("read order: %w", err)
	}
	i := slices.IndexFunc(all, func(c harness.System) bool { return c.Name() == o.Contestant })
	if i < 0 {
		return fmt.Errorf("there is no contestant %q", o.Contestant)
	}
	teller := newTeller(to)
	defer func() { err = errors.Join(err, teller.close()) }()
	options := harness.Options{Slots: o.Slots, WorkTime: o.Work, Stages: o.Only}
	if o.Observe {
		options.Observe = teller.tell
	}
	crew, err := all[i].Start(ctx, o.URL, options)
	if err != nil {
		return err
	}
	teller.tell(harness.Observation{Kind: ready})
	if err = obey(ctx, crew, commands, teller); errors.Is(err, errAlone) {
		return err // and the process ends, with all it has
	}
	return errors.Join(err, crew.Stop(ctx))
}

// errAlone: there is nobody who would tell it to stop, and maybe no database in
// which it could do that in good order.
var errAlone = errors.New("the program that started this crew is gone")

// obey does what it is told until that is to stop.
func obey(ctx context.Context, crew harness.Workers, commands io.Reader, teller *teller) error {
	for in := json.NewDecoder(commands); ; {
		var c command
		if err := in.Decode(&c); errors.Is(err, io.EOF) {
			return errAlone
		} else if err != nil {
			return fmt.Errorf("read command: %w", err)
		}
		if c.Stop {
			return nil
		}
		var err error
		if c.N == 0 {
			err = crew.Submit(ctx, c.First)
		} else {
			err = crew.SubmitAll(ctx, c.First, c.N)
		}
		if err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		teller.tell(harness.Observation{Kind: submitted})
	}
}

// teller writes records. Whoever tells something does not wait for the pipe:
// what comes up during one write is the next.
type teller struct {
	mu     sync.Mutex
	news   *sync.Cond
	buf    []byte
	closed bool
	ended  chan error
}

func newTeller(to io.Writer) *teller {
	t := &teller{ended: make(chan error, 1)}
	t.news = sync.NewCond(&t.mu)
	go func() { t.ended <- t.write(to) }()
	return t
}

func (t *teller) tell(m harness.Observation) {
	t.mu.Lock()
	t.buf = encode(t.buf, m)
	t.mu.Unlock()
	t.news.Signal()
}

func (t *teller) write(to io.Writer) error {
	var batch []byte
	for {
		t.mu.Lock()
		for len(t.buf) == 0 && !t.closed {
			t.news.Wait()
		}
		batch, t.buf = t.buf, batch[:0]
		t.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		if _, err := to.Write(batch); err != nil {
			return fmt.Errorf("tell: %w", err)
		}
	}
}

// close writes what is left.
func (t *teller) close() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.news.Signal()
	return <-t.ended
}
