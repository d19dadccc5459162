package main

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/stages/video"
)

const (
	// tidyEvery is how often a daemon tidies, more or less: several that were
	// started together need not do it together.
	tidyEvery = 10 * time.Minute
	// tidyGrace is how long the end of the process waits for a tidying that was
	// told to end. Only a disk that hangs keeps it from that.
	tidyGrace = 10 * time.Second
)

// tidying removes now and then what attempts have left that were killed.
type tidying struct {
	tidier video.Cleaner
	log    *zap.Logger
	failed bool // last time, and it was told
}

// start begins at once. The function it returns ends it and waits.
func (t *tidying) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.run(ctx)
	}()
	return func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(tidyGrace):
			t.log.Warn("tidying does not end; does a disk hang?")
		}
	}
}

func (t *tidying) run(ctx context.Context) {
	for {
		t.once(ctx)
		spread := time.Duration((rand.Float64() - 0.5) * float64(tidyEvery) / 2)
		if pause(ctx, tidyEvery+spread) != nil {
			return
		}
	}
}

func (t *tidying) once(ctx context.Context) {
	done, err := t.tidier.Clean(ctx)
	if done.Removed > 0 {
		t.log.Info("tidied", zap.Int("removed", done.Removed), zap.Int64("bytes", done.Bytes))
	}
	if ctx.Err() != nil {
		return
	}
	switch failed := err != nil; {
	case failed && !t.failed:
		t.log.Warn("not everything can be tidied", zap.Error(err))
	case !failed && t.failed:
		t.log.Info("everything can be tidied again")
	}
	t.failed = err != nil
}
