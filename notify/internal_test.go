package notify

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// The delays grow to the maximum, and start again only after a successful check. They are
// random, so that many processes that lost their server do not reconnect at once.
func TestRetryDelay_GrowsAndIsRandom(t *testing.T) {
	t.Parallel()
	const maxDelay, listeners = 5 * time.Second, 200
	var late []time.Duration
	for range listeners {
		l := New(nil, Options{MaxRetryDelay: maxDelay})
		if first := l.nextDelay(); first != 0 {
			t.Fatalf("the first attempt waits for %v", first)
		}
		second := l.nextDelay()
		if second < 20*time.Millisecond || second > 80*time.Millisecond {
			t.Errorf("the second attempt waits for %v, want about 50 ms", second)
		}
		for range 20 {
			if p := l.nextDelay(); p > maxDelay {
				t.Fatalf("a delay of %v, want at most %v", p, maxDelay)
			}
		}
		late = append(late, l.nextDelay())
		l.mu.Lock()
		l.backoff.Reset()
		l.mu.Unlock()
		if again := l.nextDelay(); again > 80*time.Millisecond {
			t.Errorf("after a successful check the first delay is %v", again)
		}
	}
	slices.Sort(late)
	if spread := late[listeners*9/10] - late[listeners/10]; late[0] < time.Second || spread < 2*time.Second {
		t.Errorf("after a long outage the delays are between %v and %v, most within %v", late[0], late[listeners-1], spread)
	}
}

func TestRetryDelay_IsLongBehindAPooler(t *testing.T) {
	t.Parallel()
	l := New(nil, Options{})
	l.nextDelay()
	l.setDisconnected(ErrPooled)
	l.setDisconnected(errors.New("connection refused"))
	for range 100 {
		if p := l.nextDelay(); p < 45*time.Second || p > 75*time.Second {
			t.Fatalf("a delay of %v, want about a minute", p)
		}
	}
}

// OnChange receives changes in order. Changes that were reverted before they could be
// reported are left out, so that the queue stays short.
func TestOnChange_ReceivesOnlyChangesInOrder(t *testing.T) {
	t.Parallel()
	refused, other := errors.New("refused"), errors.New("other")
	reported := make(chan string)
	l := New(nil, Options{OnChange: func(connected bool, err error) {
		switch {
		case connected:
			reported <- "connected"
		case errors.Is(err, ErrPooled):
			reported <- "pooled"
		default:
			reported <- err.Error()
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { l.reportChanges(ctx); close(ended) }()
	connect := func() { l.setState(listening, nil) }
	for _, step := range []struct {
		do   func()
		want []string
	}{
		{func() { l.setDisconnected(refused); l.setDisconnected(other) }, []string{"refused"}},
		{func() { l.setDisconnected(other); connect(); connect() }, []string{"connected"}},
		{func() { l.setDisconnected(ErrPooled); l.setDisconnected(ErrPooled); l.setDisconnected(refused) }, []string{"pooled"}},
	} {
		step.do()
		for _, want := range step.want {
			if got := <-reported; got != want {
				t.Errorf("reported %q, want %q", got, want)
			}
		}
	}
	// The first of these is being reported while the others happen.
	connect()
	for range 1000 {
		l.setDisconnected(refused)
		connect()
	}
	l.setDisconnected(refused)
	l.mu.Lock()
	waiting := len(l.pendingChanges)
	l.mu.Unlock()
	if waiting > 2 {
		t.Errorf("%d changes wait, want at most 2", waiting)
	}
	last := "pooled"
	for last != "refused" || len(l.queuedChanges()) > 0 {
		got := <-reported
		if got == last {
			t.Fatalf("reported %q twice in a row", got)
		}
		last = got
	}
	cancel()
	<-ended
}

func (l *Listener) queuedChanges() []change {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pendingChanges
}
