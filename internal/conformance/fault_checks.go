package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
)

// completeWith completes a task in its first attempt, although a fault happens.
func (k *kit) completeWith(ctx context.Context, p params, t *trigger, f fault) error {
	if err := k.awaitWaiting(ctx); err != nil {
		return err
	}
	k.front.inject(f)
	// The request that waits does not get the fault, so the fault may need a second task.
	for range 2 {
		task, err := k.submitTask(ctx, p)
		if err == nil {
			err = k.awaitCompleted(ctx, task, longTime)
		}
		if err == nil {
			err = k.expectAttempts(ctx, task, 1)
		}
		if err != nil || t.hasFired() {
			return err
		}
	}
	return errors.New("expected: a request of the kind that this check interrupts; but there was none")
}

// Half of a piece arrives. The coordinator takes the file only from where it ends.
func checkCutUpload(ctx context.Context, k *kit) error {
	isPiece := func(r seenRequest) bool {
		return r.Method == http.MethodPut && !strings.HasPrefix(r.Header.Get("Content-Range"), "bytes 0-")
	}
	var t trigger
	return k.completeWith(ctx, params{Bytes: largeFile}, &t, t.once(isPiece, cutBody))
}

// Half of the input arrives.
func checkCutDownload(ctx context.Context, k *kit) error {
	isInput := func(r seenRequest) bool { return r.Method == http.MethodGet && strings.Contains(r.path, "/input/") }
	var t trigger
	return k.completeWith(ctx, params{Bytes: largeFile}, &t, t.once(isInput, cutAnswer(largeFile/2)))
}

// The answer with the claim does not arrive. The worker holds a claim that it does not know, and works
// on it, or releases it.
func checkLostAnswer(ctx context.Context, k *kit) error {
	var t trigger
	return k.completeWith(ctx, params{Bytes: 7}, &t, t.loseClaims)
}

// refusedTime is how long connections are refused. With the age of the last heartbeat, up to 4 s, it
// is less than the time after which a worker whose connection has ended is lost. errorTime is longer.
const (
	refusedTime = 2 * time.Second
	errorTime   = 9 * time.Second
)

// The coordinator answers with 503, while the worker is idle and while it works.
func checkErrors(ctx context.Context, k *kit) error {
	return k.checkOutage(ctx, func() error {
		k.front.inject(unavailable)
		defer k.front.inject(nil)
		return ctxsleep.For(ctx, errorTime)
	})
}

// The coordinator's address refuses connections, while the worker is idle and while it works.
func checkRefused(ctx context.Context, k *kit) error {
	return k.checkOutage(ctx, func() error {
		k.disconnect()
		return errors.Join(ctxsleep.For(ctx, refusedTime), k.listen(ctx))
	})
}

func (k *kit) checkOutage(ctx context.Context, outage func() error) error {
	if err := k.awaitWaiting(ctx); err != nil {
		return err
	}
	if err := outage(); err != nil {
		return err
	}
	task, err := k.submitTask(ctx, params{Seconds: 12, Bytes: 7})
	if err != nil {
		return err
	}
	token, err := k.awaitWork(ctx, task)
	if err != nil {
		return fmt.Errorf("after an outage: %w", err)
	}
	if err := outage(); err != nil {
		return err
	}
	if err := k.awaitCompleted(ctx, task, longTime); err != nil {
		return err
	}
	history, err := k.store.History(ctx, task)
	if err == nil && !slices.ContainsFunc(history, func(a store.Attempt) bool { return a.Token == token && a.Outcome == "completed" }) {
		err = errors.New("expected: the attempt goes on during an outage; but another one completed the task")
	}
	return err
}
