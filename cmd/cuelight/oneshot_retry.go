package main

import (
	"context"
	"errors"
	"time"

	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/stages"
)

const (
	hastyAttempts = 3
	hastyPause    = 2 * time.Second
	longestPause  = 30 * time.Second
)

// inHaste makes stages give up early. A daemon waits for minutes until a disk
// is mounted or somebody grants a permission, and there is a queue behind it;
// somebody who waits for one command wants to be told.
func inHaste(all []stages.Stage) []stages.Stage {
	for i := range all {
		if all[i].MaxAttempts == 0 || all[i].MaxAttempts > hastyAttempts {
			all[i].MaxAttempts = hastyAttempts
		}
		work := all[i].Work
		all[i].Work = func(ctx context.Context, job *stages.Job) (any, error) {
			result, err := work(ctx, job)
			if err == nil || stages.IsPermanent(err) || ctx.Err() != nil {
				return result, err
			}
			return result, stages.RetryAfter(hasty(err, job.Attempt), err)
		}
	}
	return all
}

// hasty is the pause after a failed attempt: short, but a server that asks for
// a longer one gets it within reason.
func hasty(err error, attempt int) time.Duration {
	pause := hastyPause << (attempt - 1)
	if e, ok := errors.AsType[*fetch.Error](err); ok {
		pause = max(pause, e.RetryAfter)
	}
	return min(pause, longestPause)
}
