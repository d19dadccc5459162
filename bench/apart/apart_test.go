package apart_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/bench/apart"
	"github.com/cuelight/cuelight/bench/contest"
)

func TestMain(m *testing.M) {
	if apart.Called() {
		os.Exit(apart.Main([]contest.Contestant{fake{}}))
	}
	goleak.VerifyTestMain(m)
}

// fake is a contestant in memory. The url says what goes wrong.
type fake struct{}

const (
	all    = "all is well"
	start  = "it cannot start"
	submit = "it cannot submit"
	crash  = "it ends by itself"
	stop   = "it has trouble"
)

func (fake) Name() string                        { return "fake" }
func (fake) Settings() string                    { return "in memory" }
func (fake) Setup(context.Context, string) error { return nil }

func (fake) Start(_ context.Context, url string, o contest.Options) (contest.Crew, error) {
	if url == start {
		return nil, errors.New(url)
	}
	return crew{url, o}, nil
}

type crew struct {
	url string
	contest.Options
}

func (c crew) Submit(ctx context.Context, task int64) error { return c.SubmitAll(ctx, task, 1) }

func (c crew) SubmitAll(_ context.Context, first int64, n int) error {
	switch c.url {
	case submit:
		return errors.New(c.url)
	case crash:
		os.Exit(3)
	}
	for i := range n {
		for _, s := range c.Only {
			for w := contest.Began; w <= contest.Completed; w++ {
				if c.Observe != nil {
					c.Observe(contest.Moment{Task: first + int64(i), Stage: s, What: w, At: time.Now()})
				}
			}
		}
	}
	return nil
}

func (c crew) Stop(context.Context) error {
	if c.url == stop {
		return errors.New(c.url)
	}
	return nil
}

// heard keeps what it is told.
type heard struct {
	mu  sync.Mutex
	all []contest.Moment
}

func (h *heard) observe(m contest.Moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, m)
}

func TestAllMomentsOfTheOtherProcessHaveArrivedWhenItIsStopped(t *testing.T) {
	t.Parallel()
	var h heard
	ctx := t.Context()
	began := time.Now()
	c, err := apart.Start(ctx, fake{}, all, contest.Options{
		Slots: 3, Only: []contest.Stage{contest.Transcode, contest.Publish}, Observe: h.observe,
	})
	if err != nil {
		t.Fatal(err)
	}
	const n = 10_000
	if err := errors.Join(c.Submit(ctx, 7), c.SubmitAll(ctx, 100, n), c.SubmitAll(ctx, 0, 0), c.Stop(ctx)); err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	if len(h.all) != (n+1)*6 {
		t.Fatalf("%d moments, want %d", len(h.all), (n+1)*6)
	}
	for i, m := range h.all {
		task := int64(7)
		if i >= 6 {
			task = 100 + int64(i/6) - 1
		}
		stage := []contest.Stage{contest.Transcode, contest.Publish}[i%6/3]
		if m.Task != task || m.Stage != stage || m.What != contest.What(i%3) || m.At.Before(began.Round(0)) || m.At.After(ended.Round(0)) {
			t.Fatalf("moment %d is %+v; want %v of task %d", i, m, stage, task)
		}
	}
}

func TestMomentsAreThereBeforeTheEnd(t *testing.T) {
	t.Parallel()
	there := make(chan contest.Moment, 3)
	c, err := apart.Start(t.Context(), fake{}, all, contest.Options{
		Only: []contest.Stage{contest.Ingest}, Observe: func(m contest.Moment) { there <- m },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Submit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for want := contest.Began; want <= contest.Completed; want++ {
		if m := <-there; m.What != want {
			t.Errorf("%+v, want %v", m, want)
		}
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNobodyNeedsToObserve(t *testing.T) {
	t.Parallel()
	c, err := apart.Start(t.Context(), fake{}, all, contest.Options{Only: []contest.Stage{contest.Ingest}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Submit(t.Context(), 1), c.Stop(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestTroubleOfTheOtherProcessIsToldHere(t *testing.T) {
	t.Parallel()
	for _, what := range []string{start, submit, stop} {
		if err := use(t.Context(), what); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: error is %v", what, err)
		}
	}
	if err := use(t.Context(), crash); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%s: error is %v", crash, err)
	}
}

func use(ctx context.Context, url string) error {
	c, err := apart.Start(ctx, fake{}, url, contest.Options{})
	if err != nil {
		return err
	}
	return errors.Join(c.Submit(ctx, 1), c.Stop(ctx))
}

// A crew that is alone ends at once, and does not stop in good order, for which
// its database may be missing.
func TestNobodyIsLeftAlone(t *testing.T) {
	t.Parallel()
	if err := apart.Alone(fake{}, stop); err == nil || !strings.Contains(err.Error(), "is gone") || strings.Contains(err.Error(), stop) {
		t.Errorf("error is %v", err)
	}
}

func TestUnknownContestantIsAnError(t *testing.T) {
	t.Parallel()
	_, err := apart.Start(t.Context(), unknown{}, all, contest.Options{})
	if err == nil || !strings.Contains(err.Error(), `no contestant "unknown"`) {
		t.Errorf("error is %v", err)
	}
}

type unknown struct{ fake }

func (unknown) Name() string { return "unknown" }

func TestEverythingOfAMomentComesThrough(t *testing.T) {
	t.Parallel()
	want := []contest.Moment{
		{Task: 1<<40 + 3, Stage: contest.Publish, What: contest.Completed, At: time.Unix(1, 2)},
		{Task: -1, Stage: contest.Ingest, What: contest.Began, At: time.Unix(0, 0)},
	}
	if got := apart.Through(want); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
