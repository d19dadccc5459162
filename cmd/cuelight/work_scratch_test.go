package main

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/internal/usererr"
)

func TestClaimScratch_WaitsForAChildOfAKilledWorker(t *testing.T) {
	for name, c := range map[string]struct {
		held   time.Duration
		isFree bool
	}{"for a moment": {time.Second, true}, "by another worker": {time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				other, err := os.Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				if locked, err := flock.TryLock(other, flock.Exclusive); !locked || err != nil {
					t.Fatal(locked, err)
				}
				time.AfterFunc(c.held, func() { flock.Unlock(other) })
				unlock, err := claimScratch(context.Background(), dir)
				if (err == nil) != c.isFree {
					t.Errorf("error %v", err)
				}
				if err == nil {
					unlock()
					return
				}
				if wrong, ok := errors.AsType[*usererr.Error](err); !ok || wrong.Kind != usererr.Usage {
					t.Errorf("error %v is not one of usage", err)
				}
				time.Sleep(c.held)
			})
		})
	}
}
