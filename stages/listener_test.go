package stages_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
)

// radio is a Listener that hears nothing.
type radio struct {
	fails error
	ended chan struct{}
}

func (radio) C() <-chan struct{} { return nil }

func (radio) Take() []string { return nil }

func (r radio) Run(ctx context.Context) error {
	defer close(r.ended)
	if r.fails != nil {
		return r.fails
	}
	<-ctx.Done()
	return nil
}

func TestListenerGoesOnUntilTheWorkHasDrained(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	b := setup(t, stages.Stage{Name: "one", Work: func(context.Context, *stages.Job) (any, error) {
		close(begun)
		<-release
		return nil, nil
	}})
	b.submit()
	l := radio{ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over := make(chan error, 1)
	go func() {
		over <- stages.Runner{Backend: b.backend, Pipeline: b.pipeline, Wakes: l, Grace: time.Minute}.Run(ctx)
	}()
	<-begun
	cancel()
	select {
	case <-l.ended:
		t.Error("the listener ended while there was work")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := <-over; err != nil {
		t.Error(err)
	}
	<-l.ended
}

func TestListenerThatCannotRunEndsTheRunner(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Work: func(context.Context, *stages.Job) (any, error) { return nil, nil }})
	deaf := errors.New("no ears")
	err := stages.Runner{
		Backend: b.backend, Pipeline: b.pipeline, Wakes: radio{fails: deaf, ended: make(chan struct{})},
	}.Run(context.Background())
	if !errors.Is(err, deaf) {
		t.Errorf("it ended with %v", err)
	}
}
