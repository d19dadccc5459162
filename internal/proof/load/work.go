package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// noSuchFile is in the path of sources that are not there.
const noSuchFile = "/no-such-file-"

// pipeline is the other one.
func pipeline(work stages.Work) *stages.Pipeline {
	p, err := stages.New("load", stages.Stage{Name: "nothing", Workers: 8, Work: work})
	if err != nil {
		panic(err) // it is as constant as can be
	}
	return p
}

func doNothing(context.Context, *stages.Job) (any, error) { return nil, nil }

// probe works on the other pipeline, and notes how long what was woken has waited.
type probe struct {
	pool *pgxpool.Pool

	mu     sync.Mutex
	waits  []time.Duration
	missed int // found by the sweep alone
}

func (p *probe) run(ctx context.Context) error {
	pl := pipeline(doNothing)
	listener := notify.New(p.pool, notify.Options{Channels: pl.Channels()})
	runner := stages.Runner{Pool: p.pool, Pipeline: pl, Wakes: listener, Observe: p.observe}
	return runner.Run(ctx)
}

func (p *probe) observe(e stages.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case e.Kind == stages.StageStarted && e.Woken:
		p.waits = append(p.waits, e.Waited)
	case e.Kind == stages.WakeMissed:
		p.missed += e.Count
	}
}

// take is what was noted since the last time.
func (p *probe) take() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	waits := p.waits
	p.waits = nil
	return waits
}

// submit submits to a pipeline until ctx is done, so often per second, at times of
// no pattern.
func submit(ctx context.Context, st *store.Store, rate int, source string) error {
	for i := 0; ; i++ {
		if pause(ctx, rand.N(2*time.Second/time.Duration(rate))) != nil {
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

// clip makes a video that takes a few seconds to transcode.
func clip(ctx context.Context, dir string) (string, error) {
	file := filepath.Join(dir, "clip.mp4")
	cmd := exec.CommandContext(ctx, "ffmpeg", "-v", "error", "-nostdin", "-f", "lavfi", "-i", "testsrc2=rate=25:size=640x360",
		"-f", "lavfi", "-i", "sine", "-t", "8", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-c:a", "aac", file)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make a video: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return file, nil
}

// feed keeps two videos in the pipeline, so that one is always being transcoded.
func feed(ctx context.Context, st *store.Store, file string) error {
	for {
		var open int
		for _, status := range []store.Status{store.StatusPending, store.StatusInProgress} {
			tasks, err := st.List(ctx, store.Filter{Status: status, Source: file, Limit: 3})
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			open += len(tasks)
		}
		for ; open < 2; open++ {
			if _, err := st.Submit(ctx, store.Submission{Source: file}); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if pause(ctx, time.Second) != nil {
			return nil
		}
	}
}
