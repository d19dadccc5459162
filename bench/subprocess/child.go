package subprocess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/cuelight/cuelight/bench/harness"
)

// IsChild reports whether this process was started by [Start].
func IsChild() bool { return os.Getenv(configEnv) != "" }

// recordsFD is the descriptor for records. Systems may write to standard output.
const recordsFD = 3

// Main runs such a process until its standard input ends, and returns its exit code.
func Main(systems []harness.System) int {
	syscall.CloseOnExec(recordsFD) // children of the workers must not keep it open
	records := os.NewFile(recordsFD, "records")
	err := runChild(context.Background(), systems, os.Getenv(configEnv), os.Stdin, records)
	if err = errors.Join(err, records.Close()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runChild(
	ctx context.Context, systems []harness.System, text string, commands io.Reader, records io.Writer,
) (err error) {
	var c config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return fmt.Errorf("read config: %w", err)
	}
	i := slices.IndexFunc(systems, func(s harness.System) bool { return s.Name() == c.System })
	if i < 0 {
		return fmt.Errorf("unknown system %q", c.System)
	}
	w := newRecordWriter(records)
	defer func() { err = errors.Join(err, w.close()) }()
	options := harness.Options{Slots: c.Slots, WorkTime: c.WorkTime, Stages: c.Stages}
	if c.Observe {
		options.Observe = w.add
	}
	workers, err := systems[i].Start(ctx, c.URL, options)
	if err != nil {
		return err
	}
	w.add(harness.Observation{Kind: ready})
	if err = runCommands(ctx, workers, commands, w); errors.Is(err, errNoParent) {
		return err
	}
	return errors.Join(err, workers.Stop(ctx))
}

// errNoParent ends the process without a Stop: the database may be gone, too.
var errNoParent = errors.New("the program that started this process is gone")

// runCommands runs commands until one says stop.
func runCommands(ctx context.Context, workers harness.Workers, commands io.Reader, w *recordWriter) error {
	for in := json.NewDecoder(commands); ; {
		var c command
		if err := in.Decode(&c); errors.Is(err, io.EOF) {
			return errNoParent
		} else if err != nil {
			return fmt.Errorf("read command: %w", err)
		}
		if c.Stop {
			return nil
		}
		var err error
		if c.N == 0 {
			err = workers.Submit(ctx, c.First)
		} else {
			err = workers.SubmitAll(ctx, c.First, c.N)
		}
		if err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		w.add(harness.Observation{Kind: submitted})
	}
}

// recordWriter writes records in batches: add does not wait for the pipe.
type recordWriter struct {
	mu      sync.Mutex
	changed *sync.Cond
	buf     []byte
	closed  bool
	done    chan error
}

func newRecordWriter(to io.Writer) *recordWriter {
	w := &recordWriter{done: make(chan error, 1)}
	w.changed = sync.NewCond(&w.mu)
	go func() { w.done <- w.write(to) }()
	return w
}

func (w *recordWriter) add(o harness.Observation) {
	w.mu.Lock()
	w.buf = encode(w.buf, o)
	w.mu.Unlock()
	w.changed.Signal()
}

func (w *recordWriter) write(to io.Writer) error {
	var batch []byte
	for {
		w.mu.Lock()
		for len(w.buf) == 0 && !w.closed {
			w.changed.Wait()
		}
		batch, w.buf = w.buf, batch[:0]
		w.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		if _, err := to.Write(batch); err != nil {
			return fmt.Errorf("send observations: %w", err)
		}
	}
}

// close writes the remaining records.
func (w *recordWriter) close() error {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.changed.Signal()
	return <-w.done
}
