package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// missingFile is part of the path of sources that do not exist.
const missingFile = "/no-such-file-"

// startWorkload keeps both pipelines busy until ctx is done.
func (h *harness) startWorkload(ctx context.Context, g *errgroup.Group) {
	g.Go(func() error { return h.waits.work(ctx) })
	g.Go(func() error { return submit(ctx, h.otherStore(), h.options.otherRate, "nothing-") })
	g.Go(func() error { return submit(ctx, h.videoStore(), h.options.daemonRate, h.dir+missingFile) })
	if !h.options.idle {
		g.Go(func() error {
			// It takes a few seconds to transcode.
			clip := filepath.Join(h.dir, "clip.mp4")
			if err := proofkit.MakeClip(ctx, clip, "testsrc2=size=640x360:rate=25", 8*time.Second, true); err != nil {
				return err
			}
			return submitVideos(ctx, h.videoStore(), clip)
		})
	}
}

func otherPipeline() *stages.Pipeline {
	nothing := func(context.Context, *stages.Job) (any, error) { return nil, nil }
	p, err := stages.New("load", stages.Stage{Name: "nothing", Slots: 8, Work: nothing})
	if err != nil {
		panic(err) // the pipeline is a constant
	}
	return p
}

// waitMeter works on the other pipeline, and records how long its tasks waited.
type waitMeter struct {
	pool *pgxpool.Pool

	mu          sync.Mutex
	waits       []time.Duration // of tasks that a notification announced
	missedWakes int             // tasks that only a sweep found
}

func (m *waitMeter) work(ctx context.Context) error {
	p := otherPipeline()
	listener := notify.New(m.pool, notify.Options{Channels: p.Channels()})
	runner := stages.Runner{Pool: m.pool, Pipeline: p, Wakes: listener, Observe: m.observe}
	return runner.Run(ctx)
}

func (m *waitMeter) observe(e stages.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case e.Kind == stages.StageStarted && e.Woken:
		m.waits = append(m.waits, e.Waited)
	case e.Kind == stages.WakeMissed:
		m.missedWakes += e.Count
	}
}

// take returns the waits since the last call.
func (m *waitMeter) take() []time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	waits := m.waits
	m.waits = nil
	return waits
}

// submit submits tasks until ctx is done, at random intervals with that rate per second.
func submit(ctx context.Context, st *store.Store, rate int, source string) error {
	for i := 0; ; i++ {
		if ctxsleep.For(ctx, rand.N(2*time.Second/time.Duration(rate))) != nil {
			return nil
		}
		_, err := st.Submit(ctx, store.Submission{Source: fmt.Sprint(source, i)})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// submitVideos keeps two videos in the pipeline, so that one is always being transcoded.
func submitVideos(ctx context.Context, st *store.Store, file string) error {
	for {
		unfinished := 0
		for _, status := range []store.Status{store.StatusPending, store.StatusInProgress} {
			tasks, err := st.List(ctx, store.ListQuery{Filter: store.Filter{Status: status, Source: file, Limit: 3}})
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			unfinished += len(tasks)
		}
		for ; unfinished < 2; unfinished++ {
			if _, err := st.Submit(ctx, store.Submission{Source: file}); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if ctxsleep.For(ctx, time.Second) != nil {
			return nil
		}
	}
}
