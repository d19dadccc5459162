package eventfeed_test

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

	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryOutbox has events in memory.
type memoryOutbox struct {
	mu           sync.Mutex
	events       []store.Event
	prunedTo     int64 // events up to this id are deleted
	err          error
	reads        int
	firstUnknown int64                    // ids from this one on were never allocated; 0: unlimited
	onRead       func(q store.EventQuery) // called before a query returns
}

func (s *memoryOutbox) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		s.events = append(s.events, store.Event{
			ID: int64(10 * (len(s.events) + 1)), Type: store.TaskSubmitted, Attempt: len(s.events) % 2,
		})
	}
}

// Events returns the events after an id.
func (s *memoryOutbox) Events(_ context.Context, q store.EventQuery) ([]store.Event, error) {
	if s.onRead != nil {
		defer s.onRead(q)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	if s.err != nil {
		return nil, s.err
	}
	if q.After > 0 && q.After < s.prunedTo || s.firstUnknown > 0 && q.After >= s.firstUnknown {
		return nil, store.ErrEventsGone
	}
	i, _ := slices.BinarySearchFunc(s.events, q.After+1, func(e store.Event, id int64) int { return int(e.ID - id) })
	// With spare capacity, as a real query returns it.
	return slices.Grow(slices.Clone(s.events[i:min(len(s.events), i+q.Limit)]), 100), nil
}

// EventWatermark returns an id above those of all events.
func (s *memoryOutbox) EventWatermark(context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(10*len(s.events) + 5), s.err
}

func (s *memoryOutbox) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// startFeed runs a feed until the test ends.
func startFeed(t *testing.T, o eventfeed.Options) *eventfeed.Feed {
	t.Helper()
	f := eventfeed.New(o)
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

// nextIDs takes events until it has n of them.
func nextIDs(t *testing.T, sub *eventfeed.Subscription, n int) (ids []int64) {
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

// idsAfter returns the n ids after one.
func idsAfter(after int64, n int) (ids []int64) {
	for i := range n {
		ids = append(ids, after+int64(10*(i+1)))
	}
	return ids
}

func TestSubscribe_DeliversPastAndNewEvents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &memoryOutbox{}
		src.add(3000)
		f := startFeed(t, eventfeed.Options{Reader: src})
		all, some, later := f.Subscribe(0, nil), f.Subscribe(29_000, nil), f.Subscribe(eventfeed.Now, nil)
		odd := f.Subscribe(29_900, func(e store.Event) bool { return e.Attempt == 1 })
		synctest.Wait()
		src.add(10)
		if got := nextIDs(t, all, 3010); !slices.Equal(got, idsAfter(0, 3010)) {
			t.Errorf("all events are %d, from %d to %d", len(got), got[0], got[len(got)-1])
		}
		if got := nextIDs(t, some, 110); !slices.Equal(got, idsAfter(29_000, 110)) {
			t.Errorf("events after 29000 are %v", got)
		}
		if got := nextIDs(t, later, 10); !slices.Equal(got, idsAfter(30_000, 10)) {
			t.Errorf("new events are %v", got)
		}
		if got := nextIDs(t, odd, 10); !slices.Equal(got[:2], []int64{29_920, 29_940}) {
			t.Errorf("kept events are %v", got)
		}
	})
}

func TestSubscriber_ThatIsTooSlowFailsWithoutDelayingOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &memoryOutbox{}
		f := startFeed(t, eventfeed.Options{Reader: src, BufferSize: 100})
		slow, quick := f.Subscribe(eventfeed.Now, nil), f.Subscribe(eventfeed.Now, nil)
		synctest.Wait()
		for i := range 4 {
			src.add(30)
			if got := nextIDs(t, quick, 30); !slices.Equal(got, idsAfter(int64(300*i), 30)) {
				t.Errorf("the fast subscriber got %v", got)
			}
		}
		if _, err := slow.Next(t.Context()); !errors.Is(err, eventfeed.ErrSlow) {
			t.Errorf("the slow subscriber got %v", err)
		}
		slow.Close()
		again := f.Subscribe(300, nil)
		if got := nextIDs(t, again, 90); !slices.Equal(got, idsAfter(300, 90)) {
			t.Errorf("after subscribing again it got %v", got)
		}
	})
}

func TestSubscriber_ReadsALongPastWhileEventsArrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &memoryOutbox{}
		src.add(5000)
		f := startFeed(t, eventfeed.Options{Reader: src, BufferSize: 100})
		sub := f.Subscribe(0, nil)
		other := f.Subscribe(eventfeed.Now, func(store.Event) bool { return false })
		defer other.Close()
		var got []int64
		for i := 0; len(got) < 8000; i++ {
			got = append(got, nextIDs(t, sub, 1)...)
			if i < 6 {
				src.add(500)
				time.Sleep(3 * time.Second)
			}
		}
		if !slices.Equal(got, idsAfter(0, 8000)) {
			t.Errorf("got %d events", len(got))
		}
	})
}

// More events than the queue holds may arrive while the result of a query is on its way.
func TestSubscriber_MissesNoEventThatArrivesDuringCatchUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &memoryOutbox{}
		src.add(150)
		slow := true
		src.onRead = func(q store.EventQuery) {
			if q.After != 0 || !slow { // the feed itself starts later
				return
			}
			slow = false
			for range 2 {
				src.add(60)
				time.Sleep(3 * time.Second)
			}
		}
		f := startFeed(t, eventfeed.Options{Reader: src, BufferSize: 100})
		sub := f.Subscribe(0, nil)
		if got := nextIDs(t, sub, 270); !slices.Equal(got, idsAfter(0, 270)) {
			t.Errorf("got %d events, the last is %d", len(got), got[len(got)-1])
		}
		src.add(50)
		if got := nextIDs(t, sub, 50); !slices.Equal(got, idsAfter(2700, 50)) {
			t.Errorf("then %d events, from %d", len(got), got[0])
		}
	})
}

// wakeChannel is a wake source for tests.
type wakeChannel chan struct{}

// C returns the channel.
func (w wakeChannel) C() <-chan struct{} { return w }

// Take returns nothing.
func (w wakeChannel) Take() []notify.Wake { return nil }

func TestRun_LimitsHowOftenItReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src, news := &memoryOutbox{}, make(wakeChannel, 1)
		f := startFeed(t, eventfeed.Options{Reader: src, Wake: news})
		sub := f.Subscribe(eventfeed.Now, nil)
		defer sub.Close()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		began, before := time.Now(), src.reads
		src.add(1)
		news <- struct{}{}
		if nextIDs(t, sub, 1); time.Since(began) != 0 {
			t.Errorf("after a quiet period the feed read after %s", time.Since(began))
		}
		for range 1000 {
			time.Sleep(time.Millisecond)
			src.add(1)
			select {
			case news <- struct{}{}:
			default:
			}
			f.Subscribe(eventfeed.Now, nil).Close()
		}
		nextIDs(t, sub, 1000)
		synctest.Wait()
		if n := src.reads - before; n > 52 {
			t.Errorf("the feed read %d times in a second", n)
		}
	})
}

func TestSubscribers_ShareEventsWithoutChangingThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &memoryOutbox{}
		f := startFeed(t, eventfeed.Options{Reader: src, PollInterval: time.Second})
		all, same := f.Subscribe(eventfeed.Now, nil), f.Subscribe(eventfeed.Now, nil)
		odd := f.Subscribe(eventfeed.Now, func(e store.Event) bool { return e.Attempt == 1 })
		first := f.Subscribe(eventfeed.Now, func(e store.Event) bool { return e.ID <= 40 })
		synctest.Wait()
		for range 3 { // before anybody takes them
			src.add(6)
			time.Sleep(2 * time.Second)
		}
		for name, c := range map[string]struct {
			sub  *eventfeed.Subscription
			want []int64
		}{
			"all": {all, idsAfter(0, 18)}, "the same": {same, idsAfter(0, 18)}, "first": {first, idsAfter(0, 4)},
			"odd": {odd, []int64{20, 40, 60, 80, 100, 120, 140, 160, 180}},
		} {
			if got := nextIDs(t, c.sub, len(c.want)); !slices.Equal(got, c.want) {
				t.Errorf("%s: got %v", name, got)
			}
		}
	})
}

func TestRun_WakesManySubscribersInGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const subscribers, atOnce = 200, 16
		src := &memoryOutbox{}
		f := startFeed(t, eventfeed.Options{Reader: src, PollInterval: time.Second})
		var mu sync.Mutex
		at := make(map[time.Time]int)
		var all sync.WaitGroup
		for range subscribers {
			sub := f.Subscribe(eventfeed.Now, nil)
			all.Go(func() {
				nextIDs(t, sub, 1)
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
				t.Errorf("%d subscribers were woken at once, %s after the event", n, when.Sub(added))
			}
		}
	})
}

func TestRun_ReadsNothingWithoutSubscribers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &memoryOutbox{}
		f := startFeed(t, eventfeed.Options{Reader: src})
		time.Sleep(time.Hour)
		if src.reads != 0 {
			t.Errorf("%d reads without a subscriber", src.reads)
		}
		sub := f.Subscribe(eventfeed.Now, nil)
		src.add(1) // before or after the feed reads the watermark
		synctest.Wait()
		src.add(1)
		nextIDs(t, sub, 1)
		sub.Close()
		time.Sleep(time.Minute)
		before := src.reads
		time.Sleep(time.Hour)
		if src.reads != before {
			t.Errorf("%d reads after the last subscriber", src.reads-before)
		}
	})
}

func TestSubscriber_LearnsOfPrunedEventsAndErrorsAreReportedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &memoryOutbox{}
		src.add(10)
		var reported []error
		f := startFeed(t, eventfeed.Options{Reader: src, OnError: func(err error) { reported = append(reported, err) }})
		early, live := f.Subscribe(20, nil), f.Subscribe(eventfeed.Now, nil)
		src.set(func() { src.prunedTo = 50 })
		if _, err := early.Next(t.Context()); !errors.Is(err, store.ErrEventsGone) {
			t.Errorf("a subscriber positioned in the pruned range got %v", err)
		}
		synctest.Wait()
		away := errors.New("away")
		src.set(func() { src.err = away })
		time.Sleep(time.Minute)
		src.set(func() { src.err = nil })
		src.add(1)
		nextIDs(t, live, 1)
		synctest.Wait()
		if len(reported) != 2 || reported[0] != away || reported[1] != nil {
			t.Errorf("reported errors are %v", reported)
		}
	})
}

// The feed had not read the deleted events, but a subscriber that starts after them misses none.
func TestSubscriber_AheadOfPrunedEventsContinues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &memoryOutbox{}
		src.add(10)
		f := startFeed(t, eventfeed.Options{Reader: src})
		live := f.Subscribe(eventfeed.Now, nil)
		synctest.Wait()
		time.Sleep(time.Second) // the feed has read that there are no new events
		src.add(5)
		src.set(func() { src.prunedTo = 130 })
		ahead := f.Subscribe(130, nil)
		if got := nextIDs(t, ahead, 2); !slices.Equal(got, []int64{140, 150}) {
			t.Errorf("the subscriber ahead got %v", got)
		}
		if _, err := live.Next(t.Context()); !errors.Is(err, store.ErrEventsGone) {
			t.Errorf("the other subscriber got %v", err)
		}
		src.add(1)
		if got := nextIDs(t, ahead, 1); !slices.Equal(got, []int64{160}) {
			t.Errorf("then it got %v", got)
		}
	})
}

// An id that the feed has not read may come from a process that was ahead, or from the database before a restore.
func TestSubscriber_AtAnUnknownEventIDFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := &memoryOutbox{firstUnknown: 90}
		src.add(5)
		f := startFeed(t, eventfeed.Options{Reader: src, BufferSize: 3})
		ahead, lost := f.Subscribe(70, nil), f.Subscribe(100, nil)
		within, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if _, err := lost.Next(within); !errors.Is(err, store.ErrEventsGone) {
			t.Errorf("an unknown event id: %v", err)
		}
		synctest.Wait()
		src.add(5)
		if got := nextIDs(t, ahead, 3); !slices.Equal(got, idsAfter(70, 3)) {
			t.Errorf("the subscriber ahead got %v", got)
		}
		src.set(func() { src.firstUnknown = 0 })
		src.add(1)
		if got := nextIDs(t, ahead, 1); !slices.Equal(got, []int64{110}) {
			t.Errorf("then it got %v", got)
		}
	})
}

func TestSubscriptions_EndWithTheFeed(t *testing.T) {
	t.Parallel()
	f := eventfeed.New(eventfeed.Options{Reader: &memoryOutbox{}})
	sub := f.Subscribe(0, nil)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := f.Run(ctx); err != nil {
		t.Error(err)
	}
	for _, s := range []*eventfeed.Subscription{sub, f.Subscribe(eventfeed.Now, nil)} {
		if _, err := s.Next(t.Context()); !errors.Is(err, eventfeed.ErrClosed) {
			t.Errorf("after the feed's end: %v", err)
		}
		s.Close()
		s.Close()
	}
}

// Many submitters, and subscribers that reconnect: each event arrives once and in order.
func TestFeed_OfADatabaseMissesNoEvent(t *testing.T) {
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
	f := startFeed(t, eventfeed.Options{Reader: st, Wake: listener})
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
