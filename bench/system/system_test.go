package system_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/system"
)

func TestDoWork_LastsAsLongAsConfigured(t *testing.T) {
	t.Parallel()
	var seen []system.Observation
	o := system.Options{WorkTime: 5 * time.Millisecond, Observe: func(m system.Observation) { seen = append(seen, m) }}
	if err := o.DoWork(t.Context(), 1, system.Ingest, 1); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || seen[0].Kind != system.Started || seen[1].Kind != system.Ended ||
		seen[1].At.Sub(seen[0].At) < o.WorkTime {
		t.Errorf("observed %v", seen)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o.WorkTime = time.Hour
	if err := o.DoWork(ctx, 2, system.Ingest, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want context.Canceled", err)
	}
}

func TestDoWork_FailsTheFirstTranscodeOfEveryNthTask(t *testing.T) {
	t.Parallel()
	o := system.Options{FailEvery: 10, Observe: func(system.Observation) {}}
	for _, c := range []struct {
		task    int64
		stage   system.Stage
		attempt int
		fails   bool
	}{
		{20, system.Transcode, 1, true}, {20, system.Transcode, 2, false}, {21, system.Transcode, 1, false},
		{20, system.Metadata, 1, false},
	} {
		if err := o.DoWork(t.Context(), c.task, c.stage, c.attempt); errors.Is(err, system.ErrPlanned) != c.fails {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestFirstError_KeepsTheFirst(t *testing.T) {
	t.Parallel()
	var list system.FirstError
	if err := list.Err(); err != nil {
		t.Errorf("an empty list returns %v", err)
	}
	cause := errors.New("1")
	for _, err := range []error{nil, cause, errors.New("2")} {
		list.Add(err)
	}
	err := list.Err()
	if err != cause {
		t.Errorf("error is %v", err)
	}
}

func TestFirstError_CollectsLoggedErrors(t *testing.T) {
	t.Parallel()
	var list system.FirstError
	log := list.Logger().With(slog.Int("id", 7)).WithGroup("g")
	log.Warn("slow")
	log.Error("ends", "error", fmt.Errorf("begin: %w", context.Canceled))
	log.Error("lost", "what", "a job")
	if err := list.Err(); err == nil || !strings.HasSuffix(err.Error(), `level=ERROR msg=lost id=7 g.what="a job"`) {
		t.Errorf("error is %v", err)
	}
}
