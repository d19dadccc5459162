package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
)

// startTime is how long a worker may take to start, or to begin with a task; exitTime to end;
// longTime to complete a task after a fault.
const (
	startTime = 20 * time.Second
	exitTime  = 20 * time.Second
	longTime  = 60 * time.Second
)

// largeFile is sent in three pieces, and read in more.
const largeFile = 20 << 20

// checks are all checks, in their order: the one of drain ends the worker that the others share.
var checks = []struct {
	name string
	run  func(ctx context.Context, k *kit) error
}{
	{"waiting", checkWaiting},
	{"good-path", checkGoodPath},
	{"checking", checkChecking},
	{"late", checkLate},
	{"lost-lease", checkLostLease},
	{"cancel", checkCancel},
	{"cut-upload", checkCutUpload},
	{"cut-download", checkCutDownload},
	{"redirect", checkRedirect},
	{"lost-answer", checkLostAnswer},
	{"errors", checkErrors},
	{"refused", checkRefused},
	{"drain", checkDrain},
	{"version", checkVersion},
	{"revoked-key", checkRevokedKey},
}

// awaitWaiting waits until the worker is idle.
func (k *kit) awaitWaiting(ctx context.Context) error {
	if err := k.start(); err != nil {
		return err
	}
	return k.await(ctx, startTime, "an idle worker keeps POST /exchange with wait_s open", func() (bool, string, error) {
		return k.front.isWaiting(), "no such request is open", nil
	})
}

// An idle worker keeps one request open. It does not poll, and has a task at once.
func checkWaiting(ctx context.Context, k *kit) error {
	if err := k.awaitWaiting(ctx); err != nil {
		return err
	}
	k.front.forget()
	if err := ctxsleep.For(ctx, 3*time.Second); err != nil {
		return err
	}
	isExchange := func(r seenRequest) bool { return r.path == "/exchange" }
	if n := k.front.count(isExchange); n > 3 {
		return fmt.Errorf("expected: an idle worker waits with wait_s 30; but it sent %d exchanges in 3 s", n)
	}
	task, err := k.submitTask(ctx, params{Bytes: 7})
	if err != nil {
		return err
	}
	err = k.await(ctx, 3*time.Second, "the worker gets a task that was submitted while it waited", func() (bool, string, error) {
		s, err := k.state(ctx, task)
		return s.Status != store.StatusPending, "the task is " + string(s.Status), err
	})
	if err != nil {
		return err
	}
	return k.awaitCompleted(ctx, task, longTime)
}

// maxSilence is how long a worker with claims may send nothing.
const maxSilence = 5 * time.Second

// A task of some seconds with a file of three pieces, and heartbeats all the while.
func checkGoodPath(ctx context.Context, k *kit) error {
	if err := k.awaitWaiting(ctx); err != nil {
		return err
	}
	task, err := k.submitTask(ctx, params{Seconds: 7, Bytes: largeFile})
	if err != nil {
		return err
	}
	if _, err := k.awaitWork(ctx, task); err != nil {
		return err
	}
	if err := k.awaitCompleted(ctx, task, longTime); err != nil {
		return err
	}
	last := time.Time{}
	for _, r := range k.front.requests() {
		if silence := r.at.Sub(last); !last.IsZero() && silence > maxSilence && r.path != "/exchange" {
			return fmt.Errorf("expected: a heartbeat every 2 s while there is a claim; but nothing came for %.1f s", silence.Seconds())
		}
		last = r.at
	}
	return k.expectAttempts(ctx, task, 1)
}

// The coordinator checks the file for longer than a request waits. The worker keeps the claim, and sends
// the report again.
func checkChecking(ctx context.Context, k *kit) error {
	if err := k.awaitWaiting(ctx); err != nil {
		return err
	}
	task, err := k.submitTask(ctx, params{Seconds: 3, Bytes: 7, CheckSeconds: 6})
	if err != nil {
		return err
	}
	token, err := k.awaitWork(ctx, task)
	if err == nil {
		err = k.awaitCompleted(ctx, task, longTime)
	}
	if err == nil {
		err = k.expectAttempts(ctx, task, 1)
	}
	if err != nil {
		return err
	}
	var reported time.Time
	beats := 0
	for _, r := range k.front.requests() {
		if reported.IsZero() && r.reports(token) {
			reported = r.at
		}
		if !reported.IsZero() && r.runs(token) {
			beats++
		}
	}
	if beats == 0 {
		return errors.New("expected: heartbeats with the claim go on while its files are checked; but there were none")
	}
	return nil
}

func (k *kit) expectAttempts(ctx context.Context, task store.ID, want int) error {
	s, err := k.state(ctx, task)
	if err == nil && s.Attempts != want {
		err = fmt.Errorf("expected: attempt %d is completed; but %d is", want, s.Attempts)
	}
	return err
}

// The task is cancelled in the moment in which the worker completes it.
func checkLate(ctx context.Context, k *kit) error {
	if err := k.awaitWaiting(ctx); err != nil {
		return err
	}
	task, err := k.submitTask(ctx, params{Seconds: 1, Bytes: 7})
	if err != nil {
		return err
	}
	var failed error
	isReport := func(r seenRequest) bool {
		s, err := k.state(ctx, task)
		return err == nil && r.reports(s.Token)
	}
	done := make(chan store.ID, 1)
	var t trigger
	k.front.inject(t.once(isReport, func(w http.ResponseWriter, r seenRequest, next http.Handler) {
		s, err1 := k.state(ctx, task)
		failed = errors.Join(err1, k.store.Cancel(ctx, task))
		next.ServeHTTP(w, r.Request)
		done <- s.Token
	}))
	var token store.ID
	err = k.await(ctx, longTime, "the worker reports the outcome of its claim", func() (bool, string, error) {
		select {
		case token = <-done:
			return true, "", failed
		default:
			return false, "there is no report", nil
		}
	})
	if err != nil {
		return err
	}
	k.front.inject(nil)
	if err := k.completeAnother(ctx, longTime); err != nil {
		return fmt.Errorf("after a report of a lost claim: %w", err)
	}
	if n := k.front.count(func(r seenRequest) bool { return r.reports(token) }); n > 1 {
		return fmt.Errorf("expected: a report of a lost claim is sent once; but it was sent %d times", n)
	}
	return nil
}

// completeAnother submits a task that the worker must complete.
func (k *kit) completeAnother(ctx context.Context, within time.Duration) error {
	task, err := k.submitTask(ctx, params{Bytes: 7})
	if err != nil {
		return err
	}
	return k.awaitCompleted(ctx, task, within)
}

// The worker is expired while it works. It registers again and does the task again.
func checkLostLease(ctx context.Context, k *kit) error {
	if err := k.awaitWaiting(ctx); err != nil {
		return err
	}
	before, err := k.liveWorker(ctx)
	if err != nil {
		return err
	}
	// It takes longer than the sweep that ends the claims of the lost worker.
	task, err := k.submitTask(ctx, params{Seconds: 6, Bytes: 7})
	if err != nil {
		return err
	}
	if _, err := k.awaitWork(ctx, task); err != nil {
		return err
	}
	if lost, err := k.engine.ExpireWorkers(ctx, []store.ID{before.ID}); err != nil || len(lost) != 1 {
		return errors.Join(fmt.Errorf("expired %d workers", len(lost)), err)
	}
	err = k.await(ctx, startTime, "the worker registers again after worker-unknown", func() (bool, string, error) {
		now, err := k.liveWorker(ctx)
		return err == nil && !now.ID.IsZero() && now.ID != before.ID, "there is no new worker", err
	})
	if err != nil {
		return err
	}
	if err := k.awaitCompleted(ctx, task, longTime); err != nil {
		return err
	}
	return k.expectAttempts(ctx, task, 2)
}

// A task of a minute is cancelled. The worker's one slot is free at once, and nothing more is written.
func checkCancel(ctx context.Context, k *kit) error {
	if err := k.awaitWaiting(ctx); err != nil {
		return err
	}
	task, err := k.submitTask(ctx, params{Seconds: 60, Bytes: 7})
	if err != nil {
		return err
	}
	token, err := k.awaitWork(ctx, task)
	if err != nil {
		return err
	}
	if err := k.store.Cancel(ctx, task); err != nil {
		return err
	}
	if err := k.completeAnother(ctx, 15*time.Second); err != nil {
		return fmt.Errorf("after a cancel: %w", err)
	}
	if n := k.front.count(func(r seenRequest) bool { return r.writes(token) }); n > 1 {
		return fmt.Errorf("expected: nothing of a cancelled attempt is sent; but there were %d uploads and reports", n)
	}
	return nil
}

// A drained worker finishes its task, takes no other, deregisters, and ends.
func checkDrain(ctx context.Context, k *kit) error {
	if err := k.awaitWaiting(ctx); err != nil {
		return err
	}
	task, err := k.submitTask(ctx, params{Seconds: 5, Bytes: 7})
	if err != nil {
		return err
	}
	if _, err := k.awaitWork(ctx, task); err != nil {
		return err
	}
	worker, err := k.liveWorker(ctx)
	if err != nil {
		return err
	}
	if err := k.store.DrainWorker(ctx, worker.ID); err != nil {
		return err
	}
	other, err := k.submitTask(ctx, params{Bytes: 7})
	if err != nil {
		return err
	}
	if err := k.awaitExit(ctx, exitTime, "after a drain", true); err != nil {
		return err
	}
	for id, want := range map[store.ID]store.Status{task: store.StatusCompleted, other: store.StatusPending} {
		if s, err := k.state(ctx, id); err != nil || s.Status != want {
			return errors.Join(fmt.Errorf("expected after a drain: the running task is completed, and the next is pending; but a %s one is %s",
				want, s.Status), err)
		}
	}
	if now, err := k.liveWorker(ctx); err != nil || now.ID == worker.ID {
		return errors.Join(errors.New("expected: a drained worker deregisters; but it did not"), err)
	}
	return nil
}

// The coordinator has another version of the protocol.
func checkVersion(ctx context.Context, k *kit) error {
	if err := k.restart(ctx, otherVersion); err != nil {
		return err
	}
	return k.awaitExit(ctx, exitTime, "where the coordinator speaks another version", false)
}

// The key is revoked while the worker is idle, and while it works.
func checkRevokedKey(ctx context.Context, k *kit) error {
	for _, seconds := range []float64{0, 60} {
		if err := k.restart(ctx, nil); err != nil {
			return err
		}
		if err := k.awaitWaiting(ctx); err != nil {
			return err
		}
		if seconds > 0 {
			task, err := k.submitTask(ctx, params{Seconds: seconds, Bytes: 7})
			if err == nil {
				_, err = k.awaitWork(ctx, task)
			}
			if err != nil {
				return err
			}
		}
		k.front.setRevoked(true)
		k.disconnect()
		if err := k.listen(ctx); err != nil {
			return err
		}
		if err := k.awaitExit(ctx, exitTime, "after its key was revoked", false); err != nil {
			return err
		}
	}
	return nil
}
