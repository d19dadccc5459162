package stages_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestPruneEvents_RunsPeriodically(t *testing.T) {
	week := 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		keep, want time.Duration
	}{"by default": {0, week}, "for an hour": {time.Hour, time.Hour}, "without a limit": {-1, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				f := &fakeBackend{pruneEvents: func(keep time.Duration) (n int, more bool, err error) {
					if keep != c.want {
						t.Errorf("events are kept for %s, want %s", keep, c.want)
					}
					at = append(at, time.Now())
					if len(at) > 10 {
						return 0, false, nil
					}
					return 1, len(at) == 2, nil // the second call leaves more events
				}}
				_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
					r.KeepEvents, r.Observe = c.keep, func(stages.Event) {}
				})
				time.Sleep(70 * time.Minute)
				stop()
				switch n := len(at); {
				case c.want == 0 && n != 0:
					t.Errorf("PruneEvents was called %d times, want none", n)
				case c.want != 0 && (n < 15 || n > 18):
					t.Errorf("PruneEvents was called %d times, want 11 times about every minute, and then every ten minutes", n)
				case c.want != 0 && at[2].Sub(at[1]) > 2*time.Second:
					t.Errorf("the call after one that left more events came after %s", at[2].Sub(at[1]))
				}
			})
		})
	}
}

func TestPruneEvents_ReportsARepeatedErrorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unreachable, calls := errors.New("connection refused"), 0
		f := &fakeBackend{pruneEvents: func(time.Duration) (int, bool, error) {
			if calls++; calls == 4 || calls > 7 {
				return 1, false, nil
			}
			return 0, false, unreachable
		}}
		var reported []error
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Observe = func(e stages.Event) {
				if e.Kind == stages.PruneFailed {
					reported = append(reported, e.Err)
				}
			}
		})
		time.Sleep(20 * time.Minute)
		stop()
		if !slices.Equal(reported, []error{unreachable, unreachable}) || calls < 10 {
			t.Errorf("after %d calls, reported %v; want one error for each of two outages", calls, reported)
		}
	})
}

func TestPrune_FollowsWithinAShortRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		f := &fakeBackend{}
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Backend = pruningBackend{f, func(context.Context, store.PruneOptions) (store.PruneResult, error) {
				calls++
				return store.PruneResult{}, nil
			}}
			r.Retention, r.Observe = &stages.Retention{KeepFinished: 2 * time.Minute}, func(stages.Event) {}
		})
		time.Sleep(11 * time.Minute)
		stop()
		if calls < 5 {
			t.Errorf("old tasks were deleted %d times in 11 minutes, want every two", calls)
		}
	})
}

// pruningBackend is a Backend of a Runner with Retention. Nothing is deleted but by prune.
type pruningBackend struct {
	*fakeBackend
	prune func(ctx context.Context, o store.PruneOptions) (store.PruneResult, error)
}

func (p pruningBackend) Prune(ctx context.Context, o store.PruneOptions) (store.PruneResult, error) {
	return p.prune(ctx, o)
}

func TestPrune_RunsPeriodicallyAndIsReported(t *testing.T) {
	const day = 24 * time.Hour
	defaults := store.PruneOptions{Workers: 90 * day}
	all := store.PruneOptions{Finished: day, Dead: 2 * day, Workers: 3 * day, HasFiles: true}
	for name, c := range map[string]struct {
		given stages.Retention
		want  store.PruneOptions
	}{
		"by default": {stages.Retention{}, defaults},
		"as given": {stages.Retention{
			KeepFinished: day, KeepDead: 2 * day, KeepWorkers: 3 * day,
			RemoveFiles: func(context.Context, store.DeletedTask) error { return nil },
		}, all},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				pruned := store.PruneResult{Finished: 7}
				f := &fakeBackend{}
				var reported []store.PruneResult
				_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
					r.Backend = pruningBackend{f, func(_ context.Context, o store.PruneOptions) (store.PruneResult, error) {
						if o != c.want {
							t.Errorf("pruned with %+v, want %+v", o, c.want)
						}
						if calls++; calls > 1 {
							return store.PruneResult{}, nil
						}
						return pruned, nil
					}}
					others := 3
					c.given.PruneOthers = func(context.Context) (int, error) {
						defer func() { others = 0 }()
						return others, nil
					}
					r.Retention = &c.given
					r.Observe = func(e stages.Event) {
						if e.Kind == stages.RowsPruned {
							reported = append(reported, e.Pruned)
							if e.Count != 3 {
								t.Errorf("%d other rows are reported, want 3", e.Count)
							}
						}
					}
				})
				time.Sleep(time.Hour)
				stop()
				if calls < 6 || calls > 9 || !slices.Equal(reported, []store.PruneResult{pruned}) {
					t.Errorf("in an hour %d calls, reported %+v; want one soon after the first, and then one every ten minutes", calls, reported)
				}
			})
		})
	}
}

// Ten million rows take longer than one deletion may.
func TestPrune_GoesOnSoonAfterItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Time
		f := &fakeBackend{}
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Backend = pruningBackend{f, func(ctx context.Context, _ store.PruneOptions) (store.PruneResult, error) {
				at = append(at, time.Now())
				<-ctx.Done()
				return store.PruneResult{Finished: 1}, ctx.Err()
			}}
			r.Retention = &stages.Retention{}
			r.Observe = func(e stages.Event) {
				if e.Kind == stages.PruneFailed {
					t.Errorf("it is reported as a failure: %v", e.Err)
				}
			}
		})
		time.Sleep(20 * time.Minute)
		stop()
		if len(at) < 2 || at[1].Sub(at[0]) > 10*time.Minute+2*time.Second {
			t.Errorf("deletions began at %v", at)
		}
	})
}
