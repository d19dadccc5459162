package ui

import (
	"context"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// wakeLatencyWindow is the time that the wake latency of the overview covers.
const wakeLatencyWindow = 15 * time.Minute

// overview is the totals above the board.
type overview struct {
	report.Stats
	current
	WakeLatency report.Percentiles
	OldestReady *time.Time // when the stage that is ready the longest became so
	OldestStage string
}

// current is the state of the workers, which the database changes in place.
type current struct {
	Workers []store.Worker
	Pauses  []store.Pause

	progress []report.PartsProgress       // of the divided stages of a page's tasks
	parts    []store.PartState            // of the task of a page
	videos   map[store.ID]*playback.Video // of a page's tasks that are published
}

// readOverview returns the totals, and the workers and pauses. Both are cached.
func (u *UI) readOverview(ctx context.Context) (o overview, err error) {
	if o, err = u.overview.Get(ctx, u.readStats); err != nil {
		return o, err
	}
	o.current, err = u.current.Get(ctx, u.readCurrent)
	return o, err
}

func (u *UI) readStats(ctx context.Context) (o overview, err error) {
	if o.Stats, err = u.o.Store.Stats(ctx); err != nil {
		return o, err
	}
	if u.o.WakeLatency != nil {
		o.WakeLatency = u.o.WakeLatency(wakeLatencyWindow)
	}
	oldest := o.Oldest()
	o.OldestReady, o.OldestStage = readySince(oldest.OldestReady), oldest.Stage
	if o.OldestReady == nil {
		o.OldestStage = ""
	}
	return o, nil
}

// readySince returns the time before now by an age, or nil for none. It is rounded, so
// that it is the same in the next read.
func readySince(age time.Duration) *time.Time {
	if age <= 0 {
		return nil
	}
	since := time.Now().Add(-age).Round(2 * time.Second)
	return &since
}

func (u *UI) readCurrent(ctx context.Context) (c current, err error) {
	if c.Workers, err = u.o.Store.Workers(ctx, false); err != nil {
		return c, err
	}
	c.Pauses, err = u.o.Store.Pauses(ctx)
	return c, err
}

// withProgress adds the progress of the divided stages of tasks.
func (u *UI) withProgress(ctx context.Context, c current, tasks ...store.Task) (current, error) {
	var err error
	c.progress, err = u.o.Store.PartsProgress(ctx, tasks, report.ListedWorkers(c.Workers))
	return c, err
}

// running returns the running attempt with a token.
func (c current) running(token store.ID) (store.Running, bool) {
	for _, w := range c.Workers {
		for _, r := range w.Running {
			if r.Token == token {
				return r, true
			}
		}
	}
	return store.Running{}, false
}

// isPaused reports whether a pause of exactly this stage and host exists. An empty
// name stands for all.
func (c current) isPaused(stage, host string) bool {
	return slices.ContainsFunc(c.Pauses, func(p store.Pause) bool { return p.Stage == stage && p.Host == host })
}

// isStagePaused reports whether a stage is paused on all hosts.
func (c current) isStagePaused(stage string) bool { return c.isPaused(stage, "") || c.isPaused("", "") }
