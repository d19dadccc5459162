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
	"github.com/cuelight/cuelight/store/engine"
)

func TestOldEventsAreForgottenNowAndThen(t *testing.T) {
	week := 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		keep, want time.Duration
	}{"as they are": {0, week}, "for an hour": {time.Hour, time.Hour}, "for ever": {-1, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				f := &fake{forget: func(keep time.Duration) (bool, error) {
					if keep != c.want {
						t.Errorf("they are kept for %s, want %s", keep, c.want)
					}
					at = append(at, time.Now())
					return len(at) == 2, nil // then there are more
				}}
				_, stop := run(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.KeepEvents = c.keep })
				time.Sleep(10 * time.Minute)
				stop()
				switch n := len(at); {
				case c.want == 0 && n != 0:
					t.Errorf("they were deleted %d times", n)
				case c.want != 0 && (n < 8 || n > 14):
					t.Errorf("they were looked for %d times in ten minutes", n)
				case c.want != 0 && at[2].Sub(at[1]) > 2*time.Second:
					t.Errorf("while there were more they waited for %s", at[2].Sub(at[1]))
				}
			})
		})
	}
}

func TestEventsThatCannotBeForgottenAreToldOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away, calls := errors.New("away"), 0
		f := &fake{forget: func(time.Duration) (bool, error) {
			if calls++; calls == 4 || calls > 7 {
				return false, nil
			}
			return false, away
		}}
		var told []error
		_, stop := run(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Observe = func(e stages.Event) {
				if e.Kind == stages.PruneFailed {
					told = append(told, e.Err)
				}
			}
		})
		time.Sleep(20 * time.Minute)
		stop()
		if !slices.Equal(told, []error{away, away}) || calls < 10 {
			t.Errorf("of %d tries was told %v; want it twice, for two times of trouble", calls, told)
		}
	})
}

func TestReadersAreToldOfWhatAWorkerDidLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		_, stop := run(t, f, pipeline(t, noop, "one"), nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if f.told == 0 {
			t.Error("nobody was told that it has come")
		}
		stop()
		if !f.left || f.told != 1 {
			t.Errorf("left: %t; told of it %d times", f.left, f.told)
		}
	})
}

func TestClaimOfAStageThatIsPausedIsGivenBackForThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var claims []engine.Claim
		for i := range byte(3) { // of which two can start
			claims = append(claims, engine.Claim{Task: store.ID{i, 1}, Token: store.ID{i, 2}, Attempt: 1})
		}
		hand, asked, beats := claimed(claims...), make(chan struct{}), 0
		f := &fake{
			turn: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
				<-asked
				return hand(in)
			},
			beat: func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
				if beats++; beats == 2 {
					close(asked)
					time.Sleep(100 * time.Millisecond) // the claims are there, and two have begun
				}
				return engine.HeartbeatResult{Now: time.Now(), Paused: []bool{beats > 1}}, nil
			},
		}
		p := pipeline(t, func(ctx context.Context, _ *stages.Job) (any, error) { <-ctx.Done(); return nil, ctx.Err() }, "one")
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes = newEar() })
		time.Sleep(5 * time.Second)
		var back []engine.Report
		for _, turn := range f.seen() {
			back = append(back, turn.Reports...)
		}
		if len(back) != 1 || back[0].Outcome != engine.Released || back[0].Error != "stage is paused" || back[0].Class != "interrupted" {
			t.Errorf("handed in: %+v", back)
		}
		stop()
	})
}
