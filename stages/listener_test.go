package stages_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
)

// silentListener is a Listener without notifications.
type silentListener struct {
	*fakeListener
	err   error
	ended chan struct{}
}

func (l silentListener) Run(ctx context.Context) error {
	defer close(l.ended)
	if l.err != nil {
		return l.err
	}
	<-ctx.Done()
	return nil
}

func TestListener_RunsUntilTheWorkHasDrained(t *testing.T) {
	t.Parallel()
	started, release := make(chan struct{}), make(chan struct{})
	b := setup(t, stages.Stage{Name: "one", Work: func(context.Context, *stages.Job) (any, error) {
		close(started)
		<-release
		return nil, nil
	}})
	b.submit()
	l := silentListener{fakeListener: &fakeListener{Wakes: notify.NewWakes()}, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	result := make(chan error, 1)
	go func() {
		result <- stages.Runner{Backend: b.backend, Pipeline: b.pipeline, Wakes: l, Grace: time.Minute}.Run(ctx)
	}()
	<-started
	cancel()
	select {
	case <-l.ended:
		t.Error("the listener ended while work was running")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := <-result; err != nil {
		t.Error(err)
	}
	<-l.ended
}

func TestListener_FailureStopsTheRunner(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Work: noop})
	failure := errors.New("cannot listen")
	err := stages.Runner{
		Backend: b.backend, Pipeline: b.pipeline,
		Wakes: silentListener{&fakeListener{Wakes: notify.NewWakes()}, failure, make(chan struct{})},
	}.Run(context.Background())
	if !errors.Is(err, failure) {
		t.Errorf("the Runner returned %v", err)
	}
}
