package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
)

// Options say which worker is checked.
type Options struct {
	// Worker is a command for sh. It starts one worker, in the foreground.
	Worker string
	// Checks are the names of the checks to run, of those that Names returns. Default: all.
	Checks []string
	// Output receives what the worker prints. Default: nothing does.
	Output io.Writer
	// Report is called with each result.
	Report func(Result)
}

// Result is that of one check.
type Result struct {
	Check string
	Err   error // what was expected, and what happened; nil if it passed
	Took  time.Duration
}

// Names lists the checks in their order.
func Names() (names []string) {
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// kit is a run of the checks.
type kit struct {
	*site
	worker  string
	output  io.Writer
	env     []string
	process *childproc.Process // nil before the first start
	tasks   []store.ID         // of the current check
}

// Run runs the checks and returns how many failed. An error is one of this process, such as
// postgres.ErrNotInstalled, and not the worker's.
func Run(ctx context.Context, o Options) (failed int, err error) {
	dir, err := os.MkdirTemp("", "cuelight-conformance-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	keyFile := filepath.Join(dir, "key")
	if err := os.WriteFile(keyFile, []byte(key+"\n"), 0o600); err != nil {
		return 0, err
	}
	s, err := startSite(ctx)
	defer func() { err = errors.Join(err, s.close()) }()
	if err != nil {
		return 0, err
	}
	k := &kit{site: s, worker: o.Worker, output: o.Output, env: append(os.Environ(),
		"CUELIGHT_SERVER=http://"+s.address, "CUELIGHT_KEY="+key, "CUELIGHT_KEY_FILE="+keyFile)}
	defer k.kill()
	for _, c := range checks {
		if len(o.Checks) > 0 && !slices.Contains(o.Checks, c.name) {
			continue
		}
		started := time.Now()
		if err := k.reset(ctx); err != nil {
			return failed, err
		}
		err := c.run(ctx, k)
		if ctx.Err() != nil {
			return failed, context.Cause(ctx)
		}
		if err != nil {
			failed++
		}
		o.Report(Result{c.name, err, time.Since(started)})
	}
	return failed, nil
}

// reset ends the faults and the tasks of the check before.
func (k *kit) reset(ctx context.Context) error {
	k.front.inject(nil)
	k.front.setRevoked(false)
	k.front.forget()
	err := k.clear(ctx, k.tasks, k.isRunning())
	k.tasks = nil
	return err
}

func (k *kit) isRunning() bool {
	if k.process == nil {
		return false
	}
	select {
	case <-k.process.Done():
		return false
	default:
		return true
	}
}

// start starts the worker, unless it runs.
func (k *kit) start() error {
	if k.isRunning() {
		return nil
	}
	cmd := exec.Command("sh", "-c", k.worker)
	cmd.Env, cmd.Stdout, cmd.Stderr = k.env, k.output, k.output
	if k.output == nil {
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	}
	p, err := childproc.Start(cmd, childproc.Options{})
	if err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	k.process = p
	return nil
}

// kill ends the worker's process, if it runs.
func (k *kit) kill() {
	if k.isRunning() {
		_ = k.process.SignalGroup(syscall.SIGKILL) // it may have ended just now
		<-k.process.Done()
	}
}

// restart starts a worker that has registered with nobody, to see what it does first.
func (k *kit) restart(ctx context.Context, f fault) error {
	k.kill()
	if err := k.reset(ctx); err != nil {
		return err
	}
	k.front.inject(f)
	return k.start()
}

// interval is the time between two looks at a condition that nothing announces.
const interval = 20 * time.Millisecond

// await waits until the condition is true. condition also says what there is instead.
func (k *kit) await(ctx context.Context, within time.Duration, expected string, condition func() (bool, string, error)) error {
	end := time.Now().Add(within)
	for {
		ok, saw, err := condition()
		switch {
		case ok || err != nil:
			return err
		case !k.isRunning():
			return fmt.Errorf("expected: %s; but the worker ended with exit code %d", expected, k.process.State().ExitCode())
		case time.Now().After(end):
			return fmt.Errorf("expected within %s: %s; but %s", within, expected, saw)
		}
		if err := ctxsleep.For(ctx, interval); err != nil {
			return err
		}
	}
}

// awaitExit waits for the worker's end, with exit code 0 or with another.
func (k *kit) awaitExit(ctx context.Context, within time.Duration, why string, wantZero bool) error {
	want := "0"
	if !wantZero {
		want = "other than 0"
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-k.process.Done():
	case <-ctx.Done():
		return fmt.Errorf("expected within %s: the worker ends with an exit code %s %s; but it runs on", within, want, why)
	}
	if code := k.process.State().ExitCode(); (code == 0) != wantZero {
		return fmt.Errorf("expected: the worker ends with an exit code %s %s; but it is %d", want, why, code)
	}
	return nil
}

// submitTask submits a task of the current check.
func (k *kit) submitTask(ctx context.Context, p params) (store.ID, error) {
	task, err := k.submit(ctx, p)
	k.tasks = append(k.tasks, task)
	return task, err
}

// state returns the task's stage.
func (k *kit) state(ctx context.Context, task store.ID) (store.StageState, error) {
	t, err := k.store.Get(ctx, task)
	if err != nil {
		return store.StageState{}, err
	}
	return t.Stages[0], nil
}

// awaitCompleted waits until a task is completed, which means that the coordinator has accepted its
// file and its result.
func (k *kit) awaitCompleted(ctx context.Context, task store.ID, within time.Duration) error {
	return k.await(ctx, within, "the task is completed", func() (bool, string, error) {
		s, err := k.state(ctx, task)
		if err != nil || s.Status == store.StatusCompleted {
			return err == nil, "", err
		}
		saw := "it is " + string(s.Status)
		history, err := k.store.History(ctx, task)
		for _, a := range history {
			saw += fmt.Sprintf("; attempt %d was %s: %s", a.Attempt, a.Outcome, a.Error)
		}
		return false, saw, err
	})
}

// awaitWork waits until a heartbeat says that the task is worked on, and returns the claim's token.
func (k *kit) awaitWork(ctx context.Context, task store.ID) (token store.ID, err error) {
	err = k.await(ctx, startTime, "a heartbeat names the claim of the submitted task as started", func() (bool, string, error) {
		s, err := k.state(ctx, task)
		if err != nil || s.Status != store.StatusInProgress {
			return false, "the task is " + string(s.Status), err
		}
		token = s.Token
		return k.front.count(func(r seenRequest) bool { return r.runs(token) }) > 0, "there is none", nil
	})
	return token, err
}
