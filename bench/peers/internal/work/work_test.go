package work_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/work"
)

func TestFollowing_AgreesWithNeeds(t *testing.T) {
	t.Parallel()
	for s := range harness.Stage(harness.StageCount) {
		var want []harness.Stage
		joins := false
		for after := range harness.Stage(harness.StageCount) {
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

func TestWork_LastsAsLongAsConfigured(t *testing.T) {
	t.Parallel()
	var heard []harness.Observation
	o := harness.Options{WorkTime: 5 * time.Millisecond, Observe: func(m harness.Observation) { heard = append(heard, m) }}
	if err := work.Work(t.Context(), o, 1, harness.Ingest); err != nil {
		t.Fatal(err)
	}
	if len(heard) != 2 || heard[0].Kind != harness.Started || heard[1].Kind != harness.Ended || heard[1].At.Sub(heard[0].At) < o.WorkTime {
		t.Errorf("heard %v", heard)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.WorkTime = time.Hour
	if err := work.Work(ctx, o, 2, harness.Ingest); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want that it was cancelled", err)
	}
}

func TestErrorList_KeepsTheFirstErrors(t *testing.T) {
	t.Parallel()
	var trouble work.ErrorList
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

func TestErrorList_CollectsLoggedErrors(t *testing.T) {
	t.Parallel()
	var trouble work.ErrorList
	log := trouble.Logger().With(slog.Int("id", 7)).WithGroup("g")
	log.Warn("slow")
	log.Error("ends", "error", fmt.Errorf("begin: %w", context.Canceled))
	log.Error("lost", "what", "a job")
	if err := trouble.Err(); err == nil || err.Error() != "lost id=7 what=a job" {
		t.Errorf("error is %v", err)
	}
}
