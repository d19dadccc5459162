package harness_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

func TestStage_NextAgreesWithNeeds(t *testing.T) {
	t.Parallel()
	for s := range harness.Stage(harness.StageCount) {
		var want []harness.Stage
		precedes := false
		for after := range harness.Stage(harness.StageCount) {
			for _, need := range after.Needs() {
				switch {
				case need != s:
				case len(after.Needs()) == 1:
					want = append(want, after)
				default:
					precedes = true
				}
			}
		}
		if got := s.Next(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("stages after %v: %v, want %v", s, got, want)
		}
		if got := s.PrecedesAssemble(); got != precedes {
			t.Errorf("%v precedes assemble: %v, want %v", s, got, precedes)
		}
	}
}

func TestDoWork_LastsAsLongAsConfigured(t *testing.T) {
	t.Parallel()
	var seen []harness.Observation
	o := harness.Options{WorkTime: 5 * time.Millisecond, Observe: func(m harness.Observation) { seen = append(seen, m) }}
	if err := o.DoWork(t.Context(), 1, harness.Ingest); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || seen[0].Kind != harness.Started || seen[1].Kind != harness.Ended ||
		seen[1].At.Sub(seen[0].At) < o.WorkTime {
		t.Errorf("observed %v", seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.WorkTime = time.Hour
	if err := o.DoWork(ctx, 2, harness.Ingest); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want context.Canceled", err)
	}
}

func TestErrorList_KeepsTheFirstErrors(t *testing.T) {
	t.Parallel()
	var list harness.ErrorList
	if err := list.Err(); err != nil {
		t.Errorf("an empty list returns %v", err)
	}
	cause := errors.New("1")
	for _, err := range []error{nil, cause, errors.New("2"), errors.New("3"), errors.New("4"), errors.New("5")} {
		list.Add(err)
	}
	err := list.Err()
	if want := "1\n2\n3\nand 2 more"; !errors.Is(err, cause) || err.Error() != want {
		t.Errorf("error is %q, want %q", err, want)
	}
}

func TestErrorList_CollectsLoggedErrors(t *testing.T) {
	t.Parallel()
	var list harness.ErrorList
	log := list.Logger().With(slog.Int("id", 7)).WithGroup("g")
	log.Warn("slow")
	log.Error("ends", "error", fmt.Errorf("begin: %w", context.Canceled))
	log.Error("lost", "what", "a job")
	if err := list.Err(); err == nil || !strings.HasSuffix(err.Error(), `level=ERROR msg=lost id=7 g.what="a job"`) {
		t.Errorf("error is %v", err)
	}
}
