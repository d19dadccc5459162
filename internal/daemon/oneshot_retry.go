package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/stages"
)

const (
	oneShotAttempts = 3
	firstRetryDelay = 2 * time.Second
	maxRetryDelay   = 30 * time.Second
)

// limitRetries makes stages give up early, for a command that a person waits for. A
// daemon has other work to do while it waits minutes for a disk to be mounted.
func limitRetries(all []stages.Stage) []stages.Stage {
	for i := range all {
		if all[i].MaxAttempts == 0 || all[i].MaxAttempts > oneShotAttempts {
			all[i].MaxAttempts = oneShotAttempts
		}
		all[i].Wrap(retrySoon)
	}
	return all
}

// retrySoon wraps work so that failed attempts are retried soon.
func retrySoon(work stages.Work) stages.Work {
	return func(ctx context.Context, job *stages.Job) (any, error) {
		result, err := work(ctx, job)
		if err == nil || stages.IsPermanent(err) || ctx.Err() != nil {
			return result, err
		}
		return result, stages.RetryAfter(retryDelay(err, job.Attempt), err)
	}
}

// retryDelay returns the delay after a failed attempt. A server's Retry-After makes it
// longer, within a limit.
func retryDelay(err error, attempt int) time.Duration {
	delay := firstRetryDelay << (attempt - 1)
	if e, ok := errors.AsType[*fetch.Error](err); ok {
		delay = max(delay, e.RetryAfter)
	}
	return min(delay, maxRetryDelay)
}
