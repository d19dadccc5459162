package work_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/contest"
	"github.com/cuelight/cuelight/bench/peers/internal/work"
)

func TestWhatFollowsAgreesWithWhatIsNeeded(t *testing.T) {
	t.Parallel()
	for s := range contest.Stage(contest.Stages) {
		var want []contest.Stage
		joins := false
		for after := range contest.Stage(contest.Stages) {
			for _, need := range after.Needs() {
				switch {
				case need != s:
				case len(after.Needs()) == 1:
					want = append(want, after)
				default:
					joins = true
				}
			}
		}
		if got := work.After(s); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("after %v comes %v, want %v", s, got, want)
		}
		if got := work.Joins(s); got != joins {
			t.Errorf("%v joins: %v, want %v", s, got, joins)
		}
	}
}

func TestWorkLastsAsLongAsItIsToldUnlessItIsCancelled(t *testing.T) {
	t.Parallel()
	var heard []contest.Moment
	o := contest.Options{Work: 5 * time.Millisecond, Observe: func(m contest.Moment) { heard = append(heard, m) }}
	if err := work.Do(t.Context(), o, 1, contest.Ingest); err != nil {
		t.Fatal(err)
	}
	if len(heard) != 2 || heard[0].What != contest.Began || heard[1].What != contest.Ended || heard[1].At.Sub(heard[0].At) < o.Work {
		t.Errorf("heard %v", heard)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.Work = time.Hour
	if err := work.Do(ctx, o, 2, contest.Ingest); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want that it was cancelled", err)
	}
}

func TestTroubleKeepsTheFirstErrorsAndCountsTheRest(t *testing.T) {
	t.Parallel()
	var trouble work.Trouble
	if err := trouble.Err(); err != nil {
		t.Errorf("error is %v before there is any", err)
	}
	cause := errors.New("1")
	for _, err := range []error{nil, cause, errors.New("2"), errors.New("3"), errors.New("4"), errors.New("5")} {
		trouble.Add(err)
	}
	err := trouble.Err()
	if want := "1\n2\n3\nand 2 more"; !errors.Is(err, cause) || err.Error() != want {
		t.Errorf("error is %q, want %q", err, want)
	}
}

func TestOnlyErrorsThatAreLoggedAreTrouble(t *testing.T) {
	t.Parallel()
	var trouble work.Trouble
	log := trouble.Logger().With(slog.Int("id", 7)).WithGroup("g")
	log.Warn("slow")
	log.Error("ends", "error", fmt.Errorf("begin: %w", context.Canceled))
	log.Error("lost", "what", "a job")
	if err := trouble.Err(); err == nil || err.Error() != "lost id=7 what=a job" {
		t.Errorf("error is %v", err)
	}
}
