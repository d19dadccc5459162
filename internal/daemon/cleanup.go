package daemon

import (
	"context"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/stages/video"
)

const (
	// cleanupInterval is the mean time between two runs. It varies, so that daemons
	// that were started together do not clean up together.
	cleanupInterval = 10 * time.Minute
	// cleanupStopTimeout is how long the shutdown waits for a run. Only a disk that
	// hangs takes that long.
	cleanupStopTimeout = 10 * time.Second
)

// cleanup deletes the files that killed attempts have left.
type cleanup struct {
	cleaner video.Cleaner
	log     *zap.Logger
	report  func(error)                     // logs failures
	observe func(removed video.CleanResult) // what each run removed
}

func newCleanup(cleaner video.Cleaner, log *zap.Logger) cleanup {
	return cleanup{
		cleaner, log, failureLogger(log, "disk cleanup is incomplete", "disk cleanup is complete again"), func(video.CleanResult) {},
	}
}

// start runs the cleanup in the background, from the time that workStarted is closed: until then the locations may be
// those of another database. The function it returns stops it.
func (c *cleanup) start(workStarted <-chan struct{}) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-workStarted:
			c.run(ctx)
		case <-ctx.Done():
		}
	}()
	return func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(cleanupStopTimeout):
			c.log.Warn("the disk cleanup does not stop; does a disk hang?")
		}
	}
}

func (c *cleanup) run(ctx context.Context) {
	for {
		c.runOnce(ctx)
		jitter := time.Duration((rand.Float64() - 0.5) * float64(cleanupInterval) / 2)
		if ctxsleep.For(ctx, cleanupInterval+jitter) != nil {
			return
		}
	}
}

func (c *cleanup) runOnce(ctx context.Context) {
	done, err := c.cleaner.Clean(ctx)
	c.observe(done)
	if done.Removed > 0 {
		c.log.Info("disk cleaned up", zap.Int("removed", done.Removed), zap.Int64("bytes", done.Bytes),
			zap.Int("source_copies", done.SourceCopies))
	}
	if ctx.Err() == nil {
		c.report(err)
	}
}
