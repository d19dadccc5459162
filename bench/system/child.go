package system

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// recordsFD is the descriptor for records. Systems may write to standard output.
const recordsFD = 3

// RunIfChild runs the workers of one of the systems if [StartProcess] started this process, until its
// standard input ends, and then ends the process.
func RunIfChild(systems []System) {
	proofkit.RunIfChild(configEnv, func(c config) error {
		syscall.CloseOnExec(recordsFD) // children of the workers must not keep it open
		records := os.NewFile(recordsFD, "records")
		return errors.Join(runChild(context.Background(), systems, c, os.Stdin, records), records.Close())
	})
}

func runChild(ctx context.Context, systems []System, c config, commands io.Reader, records io.Writer) (err error) {
	i := slices.IndexFunc(systems, func(s System) bool { return s.Name() == c.System })
	if i < 0 {
		return fmt.Errorf("unknown system %q", c.System)
	}
	w := newRecordWriter(records)
	defer func() { err = errors.Join(err, w.close()) }()
	c.Options.Observe = w.add
	workers, err := systems[i].Start(ctx, c.URL, c.Options)
	if err != nil {
		return err
	}
	w.add(Observation{Kind: ready})
	if err = runCommands(ctx, workers, commands, w); errors.Is(err, errNoParent) {
		return err
	}
	return errors.Join(err, workers.Stop(ctx))
}

// errNoParent ends the process without a Stop: the database may be gone, too.
var errNoParent = errors.New("the program that started this process is gone")

// runCommands runs commands until one says stop.
func runCommands(ctx context.Context, workers Workers, commands io.Reader, w *recordWriter) error {
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
		w.add(Observation{Kind: submitted})
	}
}

// recordWriter writes records in batches. add waits for the pipe only if the parent is far behind.
type recordWriter struct {
	records chan Observation
	done    chan error
}

func newRecordWriter(to io.Writer) *recordWriter {
	w := &recordWriter{records: make(chan Observation, 1<<16), done: make(chan error, 1)}
	go func() { w.done <- w.write(to) }()
	return w
}

func (w *recordWriter) add(o Observation) { w.records <- o }

// write writes records until the last one. After an error, which the writer keeps, it only takes
// them.
func (w *recordWriter) write(to io.Writer) error {
	out := bufio.NewWriterSize(to, 64<<10)
	var record []byte
	for o := range w.records {
		if o.Kind == last {
			break
		}
		record = encode(record[:0], o)
		_, _ = out.Write(record)
		if len(w.records) == 0 {
			_ = out.Flush()
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("send observations: %w", err)
	}
	return nil
}

// close writes the remaining records. Workers that did not stop may still add some.
func (w *recordWriter) close() error {
	w.add(Observation{Kind: last})
	return <-w.done
}
