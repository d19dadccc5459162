package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
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

// Run runs the checks and returns how many failed. An error is one of this process, such as
// postgres.ErrNotInstalled, and not the worker's.
func Run(ctx context.Context, o Options) (failed int, err error) {
	for _, c := range checks {
		if len(o.Checks) > 0 && !slices.Contains(o.Checks, c.name) {
			continue
		}
		started := time.Now()
		found, err := o.run(ctx, c.run)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return failed, err
		}
		if found != nil {
			failed++
		}
		o.Report(Result{c.name, found, time.Since(started)})
	}
	return failed, nil
}

// The worker's key, and the principal that it stands for.
const key, principal = "cue_conformance", "key conformance"

// kit is what a check uses: a coordinator with its database, and a worker.
type kit struct {
	store   *store.Store
	engine  *engine.Engine
	process *childproc.Process
	worker  store.Worker // as it registered first
	beats   atomic.Int32 // heartbeats
	cutNext atomic.Bool  // the next piece of an output that is not the first arrives by half
}

// pipeline returns the pipeline of the checks. An expired attempt is repeated at once. This process
// leaves the stage to others.
func pipeline() (*stages.Pipeline, error) {
	return stages.New("conformance", stages.Stage{
		Name: "work", Slots: -1, MaxAttempts: 5, Backoff: stages.Backoff{Base: 100 * time.Millisecond, Max: 100 * time.Millisecond},
		Work: func(context.Context, *stages.Job) (any, error) { return nil, errors.New("this process does not work") },
	})
}

// run starts a coordinator and a worker, and runs one check. It returns what the check found.
func (o Options) run(ctx context.Context, check func(context.Context, *kit) error) (found, err error) {
	p, err := pipeline()
	if err != nil {
		return nil, err
	}
	database, remove, err := startDatabase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	pool, err := pgxpool.New(ctx, database.URL())
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	k := &kit{store: store.New(pool, p.Graph()), engine: engine.New(pool, p.Graph())}
	if _, err := k.store.Migrate(ctx); err != nil {
		return nil, err
	}
	coordinator := remote.NewCoordinator(remote.Options{
		Pool: pool, Pipeline: p, Authenticate: authenticate,
		Files: &files{outputs: make(map[store.ID][]byte), cancel: k.store.Cancel},
	})
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler: k.observe(http.StripPrefix("/api/v1/worker", coordinator)), ReadHeaderTimeout: limit,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	// A coordinator does not expire the claims of lost workers; a worker with the database does.
	sweeper := stages.Runner{Pool: pool, Pipeline: p, SweepInterval: time.Second}
	runCtx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	defer server.Close()
	running.Go(func() { _ = server.Serve(l) })         // until it is closed
	running.Go(func() { _ = coordinator.Run(runCtx) }) // returns nil
	running.Go(func() { _ = sweeper.Run(runCtx) })     // without it a check fails
	if k.process, err = o.startWorker(l.Addr().String()); err != nil {
		return nil, err
	}
	defer func() {
		_ = k.process.SignalGroup(syscall.SIGKILL) // it may have ended
		<-k.process.Done()
	}()
	if err := k.awaitRegistered(ctx, &k.worker); err != nil {
		return err, nil
	}
	return check(ctx, k), nil
}

func authenticate(r *http.Request) (string, error) {
	if r.Header.Get("Authorization") != "Bearer "+key {
		return "", errors.New("the key is not that of $CUELIGHT_KEY")
	}
	return principal, nil
}

func (o Options) startWorker(address string) (*childproc.Process, error) {
	cmd := exec.Command("sh", "-c", o.Worker)
	cmd.Env = append(os.Environ(), "CUELIGHT_SERVER=http://"+address, "CUELIGHT_KEY="+key)
	cmd.Stdout, cmd.Stderr = o.Output, o.Output
	return childproc.Start(cmd, childproc.Options{})
}

// observe passes requests on, and counts heartbeats. If a piece is to be cut, half of it arrives, and the connection is closed
// without an answer.
func (k *kit) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/heartbeat") {
			k.beats.Add(1)
		}
		isLaterPiece := r.Method == http.MethodPut && !strings.HasPrefix(r.Header.Get("Content-Range"), "bytes 0-")
		if !isLaterPiece || !k.cutNext.CompareAndSwap(true, false) {
			next.ServeHTTP(w, r)
			return
		}
		r.Body = io.NopCloser(io.LimitReader(r.Body, r.ContentLength/2))
		next.ServeHTTP(w, r)
		panic(http.ErrAbortHandler) // the server drops the answer, which it has not sent yet
	})
}

// limit is how long a worker may take for anything: to start, to do a short task after a fault, to end.
const limit = 40 * time.Second

// await waits until the condition is true. condition also says what there is instead.
func (k *kit) await(ctx context.Context, expected string, condition func() (bool, string, error)) error {
	for end := time.Now().Add(limit); ; {
		ok, saw, err := condition()
		if ok || err != nil {
			return err
		}
		if state := k.process.State(); state != nil {
			return fmt.Errorf("expected: %s; but the worker ended with exit code %d", expected, state.ExitCode())
		}
		if time.Now().After(end) {
			return fmt.Errorf("expected within %s: %s; but %s", limit, expected, saw)
		}
		if err := ctxsleep.For(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// awaitRegistered waits until a worker is registered that is another one than w, and stores it there.
func (k *kit) awaitRegistered(ctx context.Context, w *store.Worker) error {
	return k.await(ctx, "the worker registers", func() (bool, string, error) {
		live, err := k.store.WorkersOf(ctx, principal)
		if len(live) == 0 || live[len(live)-1].ID == w.ID {
			return false, "it has not", err
		}
		*w = live[len(live)-1]
		return true, "", nil
	})
}

// submit submits a task, and waits until its first attempt has that status.
func (k *kit) submit(ctx context.Context, p params, want store.Status) (store.ID, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return store.ID{}, err
	}
	receipt, err := k.store.Submit(ctx, store.Submission{Source: "conformance", Params: text})
	if err != nil {
		return store.ID{}, err
	}
	return receipt.ID, k.awaitStatus(ctx, receipt.ID, want, 1)
}

// awaitStatus waits until an attempt has a status. It is completed when the coordinator has accepted its file
// and its result.
func (k *kit) awaitStatus(ctx context.Context, task store.ID, want store.Status, attempt int) error {
	return k.await(ctx, "the task is "+string(want), func() (bool, string, error) {
		t, err := k.store.Get(ctx, task)
		if err != nil {
			return false, "", err
		}
		s := t.Stages[0]
		if s.Status == want && (s.Attempts == attempt || want == store.StatusPending) { // which has had none
			return true, "", nil
		}
		saw := fmt.Sprintf("it is %s, attempt %d", s.Status, s.Attempts)
		history, err := k.store.History(ctx, task)
		for _, a := range history {
			saw += fmt.Sprintf("; attempt %d was %s: %s", a.Attempt, a.Outcome, a.Error)
		}
		return false, saw, err
	})
}
