package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/cuelight/cuelight/bench/child"
	"github.com/cuelight/cuelight/bench/result"
)

// IdleDaemon is what a daemon costs that has nothing to do: "idle_daemon", with
// the statements that it sends in a second, the share of a core that it uses, and
// the most memory that it had resident, also while it started. Its database is
// empty, and what its connections do once is over when the measurement begins.
//
// Statements are counted in the server's log, with log_statement=all for this
// database: it has a line for each statement that is executed, in either
// protocol, also for an empty one that only asks whether the connection lives.
// The transactions in pg_stat_database would be less true: autovacuum's are among
// them, and sessions report theirs up to ten seconds late.
type IdleDaemon struct {
	Settle time.Duration // from when it works until the measurement begins
	For    time.Duration
}

// Names are those of its figures.
func (IdleDaemon) Names() []string { return []string{"idle_daemon"} }

// Settings are those of its database.
func (IdleDaemon) DatabaseSettings() []string { return []string{"log_statement=all"} }

// workingWithin is how long a daemon may take to start.
const workingWithin = time.Minute

// Measure measures all of it.
func (d IdleDaemon) Measure(ctx context.Context, t *Trial) (err error) {
	if t.DaemonCommand == nil {
		return fmt.Errorf("%w: no way to start a daemon", errNotHere)
	}
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w: the daemon needs %s, which is not installed", errNotHere, name)
		}
	}
	dir, err := os.MkdirTemp(t.ScratchDir, "cuelight-bench-daemon-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cmd, err := t.DaemonCommand(ctx, dir, t.URL)
	if err != nil {
		return err
	}
	working := newTextWatcher(`"msg":"working"`)
	cmd.Stderr = working
	daemon, err := child.Start(cmd)
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		err = errors.Join(err, daemon.Stop(ending))
	}()
	select {
	case <-working.found:
	case <-daemon.Done():
		return errors.New("the daemon ended at once")
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(workingWithin):
		return fmt.Errorf("the daemon does not work after %v", workingWithin)
	}
	if err := pause(ctx, d.Settle); err != nil {
		return err
	}
	return d.watch(ctx, t, daemon)
}

// watch measures from now on.
func (d IdleDaemon) watch(ctx context.Context, t *Trial, daemon *child.Process) error {
	before, err := look(t.Server, daemon)
	if err != nil {
		return err
	}
	if err := pause(ctx, d.For); err != nil {
		return err
	}
	after, err := look(t.Server, daemon)
	if err != nil {
		return err
	}
	seconds := after.at.Sub(before.at).Seconds()
	statements, err := t.Server.statements(before.log, after.log)
	if err != nil {
		return err
	}
	t.Record("idle_daemon", "queries", "queries/s", result.FromValue(float64(statements)/seconds))
	t.Record("idle_daemon", "cpu", "share of a core", result.FromValue((after.CPU-before.CPU).Seconds()/seconds))
	t.Record("idle_daemon", "memory", "MiB", result.FromValue(float64(after.Memory)/(1<<20)))
	t.Note("idle_daemon", "cuelight serve on an empty database, for %v, %v after it began to work", d.For, d.Settle)
	return nil
}

// glance is how things stand at a time.
type glance struct {
	child.Usage
	at  time.Time
	log int64 // the length of the server's log
}

func look(s *Server, daemon *child.Process) (g glance, err error) {
	info, err := os.Stat(s.server.Log())
	if err != nil {
		return g, err
	}
	g.log, g.at = info.Size(), time.Now()
	g.Usage, err = daemon.Usage()
	return g, err
}

// The beginnings of what the server says of a statement in the simple protocol
// and in the extended one. A statement of several lines goes on in lines that
// begin with a tab.
var saidOfStatements = [][]byte{[]byte(" LOG:  statement: "), []byte(" LOG:  execute ")}

// statements counts those in a part of the server's log.
func (s *Server) statements(from, to int64) (n int, err error) {
	log, err := os.Open(s.server.Log())
	if err != nil {
		return 0, err
	}
	defer log.Close()
	text, err := io.ReadAll(io.NewSectionReader(log, from, to-from))
	return countStatements(text), err
}

func countStatements(log []byte) (n int) {
	for line := range bytes.Lines(log) {
		if line[0] == '\t' {
			continue
		}
		for _, beginning := range saidOfStatements {
			if bytes.Contains(line, beginning) {
				n++
				break
			}
		}
	}
	return n
}

// word hears whether something is written to it.
type textWatcher struct {
	text  []byte
	found chan struct{} // closed when it was
	last  []byte
}

func newTextWatcher(text string) *textWatcher {
	return &textWatcher{text: []byte(text), found: make(chan struct{})}
}

// Write is called by one goroutine.
func (w *textWatcher) Write(b []byte) (int, error) {
	if w.text == nil {
		return len(b), nil
	}
	w.last = append(w.last, b...)
	if bytes.Contains(w.last, w.text) {
		w.text, w.last = nil, nil
		close(w.found)
	} else {
		w.last = bytes.Clone(w.last[max(0, len(w.last)-len(w.text)):])
	}
	return len(b), nil
}
