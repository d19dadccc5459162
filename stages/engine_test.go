package stages_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestQuick(t *testing.T) {
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	var n atomic.Int64
	noop := func(ctx context.Context, j *stages.Job) (any, error) { n.Add(1); return map[string]int{"x": 1}, nil }
	p, err := stages.New("video",
		stages.Stage{Name: "ingest", Work: noop, Workers: 50},
		stages.Stage{Name: "transcode", Needs: []string{"ingest"}, Work: noop, Workers: 50},
		stages.Stage{Name: "metadata", Needs: []string{"ingest"}, Work: noop, Workers: 50},
		stages.Stage{Name: "assemble", Needs: []string{"transcode", "metadata"}, Work: noop, Workers: 50},
		stages.Stage{Name: "publish", Needs: []string{"assemble"}, Work: noop, Workers: 50},
	)
	if err != nil {
		t.Fatal(err)
	}
	st := store.New(pool, p.Graph())
	var chans []string
	for _, s := range g.Stages() {
		chans = append(chans, g.Channel(s))
	}
	chans = append(chans, g.RecallChannel())
	l := notify.New(pool, notify.Options{Channels: chans, OnChange: func(c bool, err error) { t.Log("listener", c, err) }})
	ctx, cancel := context.WithCancel(t.Context())
	go l.Run(ctx)
	done := make(chan error)
	finished := make(chan store.ID, 100000)
	r := stages.Runner{Store: st, Pipeline: p, Wakes: l, Observe: func(e stages.Event) {
		if e.Err != nil || e.Kind == stages.Registered {
			t.Log(e)
		}
		if e.Kind == stages.Completed && e.Stage == "publish" {
			finished <- e.Task
		}
	}}
	go func() { done <- r.Run(ctx) }()
	time.Sleep(300 * time.Millisecond)
	for range 5 {
		t0 := time.Now()
		if _, err := st.Submit(ctx, store.Submission{Source: "x"}); err != nil {
			t.Fatal(err)
		}
		d := time.Since(t0)
		<-finished
		t.Log("e2e", time.Since(t0), "submit", d)
	}
	subs := make([]store.Submission, 10000)
	for i := range subs {
		subs[i].Source = "y"
	}
	t0 := time.Now()
	if _, err := st.SubmitAll(ctx, subs); err != nil {
		t.Fatal(err)
	}
	t.Log("submitted", time.Since(t0))
	for range subs {
		<-finished
	}
	d := time.Since(t0)
	t.Log("drained", d, float64(len(subs))/d.Seconds(), "tasks/s")
	cancel()
	t.Log(<-done, n.Load())
}
