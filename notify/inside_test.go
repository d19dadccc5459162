package notify

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// Pauses grow to the longest allowed, start again only when a connection proved
// itself, and are drawn by each process for itself: a fleet that lost its
// server together does not come back in step.
func TestPausesGrowAndAreNobodyElses(t *testing.T) {
	t.Parallel()
	const atMost, fleet = 5 * time.Second, 200
	var late []time.Duration
	for range fleet {
		l := New(nil, Options{RetryAtMost: atMost})
		if first := l.nextPause(); first != 0 {
			t.Fatalf("the first try waits for %v", first)
		}
		second := l.nextPause()
		if second < 20*time.Millisecond || second > 80*time.Millisecond {
			t.Errorf("the second try waits for %v, want about 50 ms", second)
		}
		for range 20 {
			if p := l.nextPause(); p > atMost {
				t.Fatalf("a pause of %v, want %v at most", p, atMost)
			}
		}
		late = append(late, l.nextPause())
		l.mu.Lock()
		l.pause.Reset()
		l.mu.Unlock()
		if again := l.nextPause(); again > 80*time.Millisecond {
			t.Errorf("after a proof the first pause is %v", again)
		}
	}
	slices.Sort(late)
	if spread := late[fleet*9/10] - late[fleet/10]; late[0] < time.Second || spread < 2*time.Second {
		t.Errorf("after a long time away tries come between %v and %v, most within %v of one another", late[0], late[fleet-1], spread)
	}
}

func TestPausesBehindAPoolerAreLong(t *testing.T) {
	t.Parallel()
	l := New(nil, Options{})
	l.nextPause()
	l.lost(ErrPooled)
	l.lost(errors.New("the server is away, which changes nothing"))
	for range 100 {
		if p := l.nextPause(); p < 45*time.Second || p > 75*time.Second {
			t.Fatalf("a pause of %v, want about a minute", p)
		}
	}
}

// What is told is a change each time, in order; what was undone before it could
// be told is left out, so that nothing piles up.
func TestOnlyChangesAreTold(t *testing.T) {
	t.Parallel()
	away, other := errors.New("away"), errors.New("other")
	told := make(chan string)
	l := New(nil, Options{OnChange: func(connected bool, err error) {
		switch {
		case connected:
			told <- "hears"
		case errors.Is(err, ErrPooled):
			told <- "pooled"
		default:
			told <- err.Error()
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { l.tell(ctx); close(ended) }()
	hear := func() { l.become(hearing, nil) }
	for _, step := range []struct {
		do   func()
		want []string
	}{
		{func() { l.lost(away); l.lost(other) }, []string{"away"}},
		{func() { l.lost(other); hear(); hear() }, []string{"hears"}},
		{func() { l.lost(ErrPooled); l.lost(ErrPooled); l.lost(away) }, []string{"pooled"}},
	} {
		step.do()
		for _, want := range step.want {
			if got := <-told; got != want {
				t.Errorf("told %q, want %q", got, want)
			}
		}
	}
	// The first of these is being told while the others come.
	hear()
	for range 1000 {
		l.lost(away)
		hear()
	}
	l.lost(away)
	l.mu.Lock()
	waiting := len(l.untold)
	l.mu.Unlock()
	if waiting > 2 {
		t.Errorf("%d changes wait to be told", waiting)
	}
	last := "pooled"
	for last != "away" || len(l.changes()) > 0 {
		got := <-told
		if got == last {
			t.Fatalf("told %q twice in a row", got)
		}
		last = got
	}
	cancel()
	<-ended
}

func (l *Listener) changes() []change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.untold
}
