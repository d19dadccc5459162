package feed_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/feed"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is an outbox without a database.
type source struct {
	mu     sync.Mutex
	events []store.Event
	gone   int64 // up to here they are deleted
	err    error
	reads  int
	never  int64                    // from here on there never was any; 0 for not known
	took   func(q store.EventQuery) // an answer is on its way
}

func (s *source) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.events = append(s.events, store.Event{ID: int64(10 * (len(s.events) + 1)), Type: store.TaskSubmitted, Attempt: len(s.events) % 2})
	}
}

func (s *source) Events(_ context.Context, q store.EventQuery) ([]store.Event, error) {
	if s.took != nil {
		defer s.took(q)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.err != nil {
		return nil, s.err
	}
	if q.After > 0 && q.After < s.gone || s.never > 0 && q.After >= s.never {
		return nil, store.ErrEventsGone
	}
	i, _ := slices.BinarySearchFunc(s.events, q.After+1, func(e store.Event, id int64) int { return int(e.ID - id) })
	// With room behind them, as those of a database have.
	return slices.Grow(slices.Clone(s.events[i:min(len(s.events), i+q.Limit)]), 100), nil
}

func (s *source) EventWatermark(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(10*len(s.events) + 5), s.err
}

func (s *source) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// run runs a feed for the test's time.
func run(t *testing.T, o feed.Options) *feed.Feed {
	t.Helper()
	f := feed.New(o)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return f
}

// next takes events until there are n of them.
func next(t *testing.T, sub *feed.Subscription, n int) (ids []int64) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Hour)
	defer stop()
	for len(ids) < n {
		events, err := sub.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// from are n ids after one.
func from(after int64, n int) (ids []int64) {
	for i := range n {
		ids = append(ids, after+int64(10*(i+1)))
	}
	return ids
}

func TestSubscribersGetThePastAndWhatComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{}
		src.add(3000)
		f := run(t, feed.Options{Source: src})
		all, some, later := f.Subscribe(0, nil), f.Subscribe(29_000, nil), f.Subscribe(feed.Now, nil)
		odd := f.Subscribe(29_900, func(e store.Event) bool { return e.Attempt == 1 })
		synctest.Wait()
		src.add(10)
		if got := next(t, all, 3010); !slices.Equal(got, from(0, 3010)) {
			t.Errorf("all are %d, from %d to %d", len(got), got[0], got[len(got)-1])
		}
		if got := next(t, some, 110); !slices.Equal(got, from(29_000, 110)) {
			t.Errorf("those after 29000 are %v", got)
		}
		if got := next(t, later, 10); !slices.Equal(got, from(30_000, 10)) {
			t.Errorf("those from now on are %v", got)
		}
		if got := next(t, odd, 10); !slices.Equal(got[:2], []int64{29_920, 29_940}) {
			t.Errorf("those to keep are %v", got)
		}
	})
}

func TestSlowSubscriberLosesItsPlaceAndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{}
		f := run(t, feed.Options{Source: src, Buffer: 100})
		slow, quick := f.Subscribe(feed.Now, nil), f.Subscribe(feed.Now, nil)
		synctest.Wait()
		for i := range 4 {
			src.add(30)
			if got := next(t, quick, 30); !slices.Equal(got, from(int64(300*i), 30)) {
				t.Errorf("the quick one got %v", got)
			}
		}
		if _, err := slow.Next(t.Context()); !errors.Is(err, feed.ErrSlow) {
			t.Errorf("the slow one got %v", err)
		}
		slow.Close()
		again := f.Subscribe(300, nil)
		if got := next(t, again, 90); !slices.Equal(got, from(300, 90)) {
			t.Errorf("having come back, it got %v", got)
		}
	})
}

func TestLongPastIsReadToItsEndHoweverMuchComesMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{}
		src.add(5000)
		f := run(t, feed.Options{Source: src, Buffer: 100})
		sub := f.Subscribe(0, nil)
		other := f.Subscribe(feed.Now, func(store.Event) bool { return false })
		defer other.Close()
		var got []int64
		for i := 0; len(got) < 8000; i++ {
			got = append(got, next(t, sub, 1)...)
			if i < 6 {
				src.add(500)
				time.Sleep(3 * time.Second)
			}
		}
		if !slices.Equal(got, from(0, 8000)) {
			t.Errorf("got %d events", len(got))
		}
	})
}

// An answer of the database says how it was when it was asked, and what happens on
// the answer's way may be more than the queue holds.
func TestWhatHappensWhileThePastIsReadIsNotPassedOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{}
		src.add(150)
		slow := true
		src.took = func(q store.EventQuery) {
			if q.After != 0 || !slow { // the feed begins later
				return
			}
			slow = false
			for range 2 {
				src.add(60)
				time.Sleep(3 * time.Second)
			}
		}
		f := run(t, feed.Options{Source: src, Buffer: 100})
		sub := f.Subscribe(0, nil)
		if got := next(t, sub, 270); !slices.Equal(got, from(0, 270)) {
			t.Errorf("got %d events, the last is %d", len(got), got[len(got)-1])
		}
		src.add(50)
		if got := next(t, sub, 50); !slices.Equal(got, from(2700, 50)) {
			t.Errorf("then %d events, from %d", len(got), got[0])
		}
	})
}

// wakes are news for whoever calls.
type wakes chan struct{}

func (w wakes) C() <-chan struct{} { return w }
func (w wakes) Take() []string     { return nil }

func TestMuchNewsIsReadNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src, news := &source{}, make(wakes, 1)
		f := run(t, feed.Options{Source: src, Wakes: news})
		sub := f.Subscribe(feed.Now, nil)
		defer sub.Close()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		began, before := time.Now(), src.reads
		src.add(1)
		news <- struct{}{}
		if next(t, sub, 1); time.Since(began) != 0 {
			t.Errorf("after a quiet time it was read after %s", time.Since(began))
		}
		for range 1000 {
			time.Sleep(time.Millisecond)
			src.add(1)
			select {
			case news <- struct{}{}:
			default:
			}
			f.Subscribe(feed.Now, nil).Close()
		}
		next(t, sub, 1000)
		synctest.Wait()
		if n := src.reads - before; n > 52 {
			t.Errorf("in a second it was read %d times", n)
		}
	})
}

func TestSubscribersThatShareEventsDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{}
		f := run(t, feed.Options{Source: src, Every: time.Second})
		all, same := f.Subscribe(feed.Now, nil), f.Subscribe(feed.Now, nil)
		odd := f.Subscribe(feed.Now, func(e store.Event) bool { return e.Attempt == 1 })
		first := f.Subscribe(feed.Now, func(e store.Event) bool { return e.ID <= 40 })
		synctest.Wait()
		for range 3 { // nobody takes them meanwhile
			src.add(6)
			time.Sleep(2 * time.Second)
		}
		for name, c := range map[string]struct {
			sub  *feed.Subscription
			want []int64
		}{
			"all": {all, from(0, 18)}, "the same": {same, from(0, 18)}, "first": {first, from(0, 4)},
			"odd": {odd, []int64{20, 40, 60, 80, 100, 120, 140, 160, 180}},
		} {
			if got := next(t, c.sub, len(c.want)); !slices.Equal(got, c.want) {
				t.Errorf("%s: got %v", name, got)
			}
		}
	})
}

func TestManySubscribersAreWokenAFewAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const subscribers, atOnce = 200, 16
		src := &source{}
		f := run(t, feed.Options{Source: src, Every: time.Second})
		var mu sync.Mutex
		at := make(map[time.Time]int)
		var all sync.WaitGroup
		for range subscribers {
			sub := f.Subscribe(feed.Now, nil)
			all.Go(func() {
				next(t, sub, 1)
				mu.Lock()
				defer mu.Unlock()
				at[time.Now()]++
			})
		}
		time.Sleep(3 * time.Second)
		added := time.Now()
		src.add(1)
		all.Wait()
		for when, n := range at {
			if n > atOnce || when.Sub(added) > 2*time.Second {
				t.Errorf("%d at once, %s after it happened", n, when.Sub(added))
			}
		}
	})
}

func TestNobodysSubscriptionIsNobodysWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{}
		f := run(t, feed.Options{Source: src})
		time.Sleep(time.Hour)
		if src.reads != 0 {
			t.Errorf("%d reads without a subscriber", src.reads)
		}
		sub := f.Subscribe(feed.Now, nil)
		src.add(1) // it may or may not have come before
		synctest.Wait()
		src.add(1)
		next(t, sub, 1)
		sub.Close()
		time.Sleep(time.Minute)
		before := src.reads
		time.Sleep(time.Hour)
		if src.reads != before {
			t.Errorf("%d reads after the last subscriber", src.reads-before)
		}
	})
}

func TestEventsThatAreGoneAreToldAndTroubleIsToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{}
		src.add(10)
		var trouble []error
		f := run(t, feed.Options{Source: src, Trouble: func(err error) { trouble = append(trouble, err) }})
		early, live := f.Subscribe(20, nil), f.Subscribe(feed.Now, nil)
		src.set(func() { src.gone = 50 })
		if _, err := early.Next(t.Context()); !errors.Is(err, store.ErrEventsGone) {
			t.Errorf("one who was away for too long got %v", err)
		}
		synctest.Wait()
		away := errors.New("away")
		src.set(func() { src.err = away })
		time.Sleep(time.Minute)
		src.set(func() { src.err = nil })
		src.add(1)
		next(t, live, 1)
		synctest.Wait()
		if len(trouble) != 2 || trouble[0] != away || trouble[1] != nil {
			t.Errorf("trouble was told as %v", trouble)
		}
	})
}

// Who begins after what was deleted has lost nothing, though the feed has, which had
// not read it.
func TestSubscriberAheadOfALossHasLostNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{}
		src.add(10)
		f := run(t, feed.Options{Source: src})
		live := f.Subscribe(feed.Now, nil)
		synctest.Wait()
		time.Sleep(time.Second) // it has seen that nothing came
		src.add(5)
		src.set(func() { src.gone = 130 })
		ahead := f.Subscribe(130, nil)
		if got := next(t, ahead, 2); !slices.Equal(got, []int64{140, 150}) {
			t.Errorf("the one that is ahead got %v", got)
		}
		if _, err := live.Next(t.Context()); !errors.Is(err, store.ErrEventsGone) {
			t.Errorf("the one that is not got %v", err)
		}
		src.add(1)
		if got := next(t, ahead, 1); !slices.Equal(got, []int64{160}) {
			t.Errorf("then it got %v", got)
		}
	})
}

// A place may be of what another process was ahead with, and of what the database was
// before it was restored.
func TestSubscriberAheadOfTheFeedIsToldWhereItsPlaceIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &source{never: 90}
		src.add(5)
		f := run(t, feed.Options{Source: src, Buffer: 3})
		ahead, lost := f.Subscribe(70, nil), f.Subscribe(100, nil)
		within, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if _, err := lost.Next(within); !errors.Is(err, store.ErrEventsGone) {
			t.Errorf("a place that is none: %v", err)
		}
		synctest.Wait()
		src.add(5)
		if got := next(t, ahead, 3); !slices.Equal(got, from(70, 3)) {
			t.Errorf("the one that is ahead got %v", got)
		}
		src.set(func() { src.never = 0 })
		src.add(1)
		if got := next(t, ahead, 1); !slices.Equal(got, []int64{110}) {
			t.Errorf("then it got %v", got)
		}
	})
}

func TestSubscriptionsEndWithTheFeed(t *testing.T) {
	t.Parallel()
	f := feed.New(feed.Options{Source: &source{}})
	sub := f.Subscribe(0, nil)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := f.Run(ctx); err != nil {
		t.Error(err)
	}
	for _, s := range []*feed.Subscription{sub, f.Subscribe(feed.Now, nil)} {
		if _, err := s.Next(t.Context()); !errors.Is(err, feed.ErrClosed) {
			t.Errorf("after its end: %v", err)
		}
		s.Close()
		s.Close()
	}
}

// With a real outbox, tasks submitted by many at once, and subscribers that come
// and go: each event once, in order.
func TestFeedOfARealOutboxMissesNothing(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	st := store.New(pool, g)
	listener := notify.New(pool, notify.Options{Channels: []string{g.Channel("ingest"), g.EventsChannel()}})
	listening, quit := context.WithCancel(t.Context())
	var all, writers sync.WaitGroup
	defer all.Wait()
	defer quit()
	all.Go(func() { _ = listener.Run(listening) })
	f := run(t, feed.Options{Source: st, Wakes: listener})
	const n = 300
	for range 4 {
		writers.Go(func() {
			for range n / 4 {
				if _, err := st.Submit(t.Context(), store.Submission{Source: "a.mp4"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		all.Go(func() {
			var seen []int64
			for len(seen) < n {
				var after int64
				if len(seen) > 0 {
					after = seen[len(seen)-1]
				}
				sub := f.Subscribe(after, nil)
				for range rand.IntN(5) {
					if len(seen) >= n {
						break
					}
					events, err := sub.Next(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					for _, e := range events {
						seen = append(seen, e.ID)
					}
				}
				sub.Close()
			}
			if !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != n || len(seen) != n {
				t.Errorf("saw %d events", len(seen))
			}
		})
	}
	writers.Wait()
}
