package store_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestWorkersHearOfPausesAtOnceAndWithEveryBeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	w := b.worker()
	heard := b.listen(b.Graph().RecallChannel())
	want := func(host string, paused ...bool) {
		t.Helper()
		out, err := b.Heartbeat(ctx, engine.HeartbeatRequest{Worker: w})
		must(t, err)
		if !slices.Equal(out.Paused, paused) || out.Draining {
			t.Errorf("a beat hears %v, drain %v, want %v", out.Paused, out.Draining, paused)
		}
		if got, err := b.PausedStages(ctx, host); err != nil || !slices.Equal(got, paused) {
			t.Errorf("paused on %s are %v, %v, want %v", host, got, err, paused)
		}
	}
	want("test", false, false, false, false, false)
	must(t, b.Pause(ctx, store.Pause{Stage: "transcode", By: "somebody"}))
	must(t, b.Pause(ctx, store.Pause{Stage: "transcode", By: "another"}))
	must(t, b.Pause(ctx, store.Pause{Host: "elsewhere"}))
	want("test", false, true, false, false, false)
	must(t, b.Pause(ctx, store.Pause{Host: "test"}))
	want("test", true, true, true, true, true)
	all, err := b.Pauses(ctx)
	if err != nil || len(all) != 3 || all[0].Stage != "transcode" || all[0].By != "somebody" || all[0].At.IsZero() || all[1].Host != "elsewhere" {
		t.Errorf("paused are %+v, %v", all, err)
	}
	for _, was := range []bool{true, false} {
		if is, err := b.Resume(ctx, store.Pause{Host: "test"}); err != nil || is != was {
			t.Errorf("resume says %v, %v, want %v", is, err, was)
		}
	}
	want("test", false, true, false, false, false)
	if n := len(heard()); n != 4 {
		t.Errorf("workers were told %d times, want 4", n)
	}
	if err := b.Pause(ctx, store.Pause{Stage: "nonsense"}); !errors.Is(err, store.ErrNoStage) {
		t.Errorf("pause of a stage that is none says %v", err)
	}
}

func TestDrainIsToldToTheWorkerAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	w, other := b.worker(), b.worker()
	must(t, b.DrainWorker(ctx, w))
	for id, drain := range map[store.ID]bool{w: true, other: false} {
		if out, err := b.Heartbeat(ctx, engine.HeartbeatRequest{Worker: id}); err != nil || out.Draining != drain {
			t.Errorf("a beat hears drain %v, %v, want %v", out.Draining, err, drain)
		}
	}
	must(t, b.DeregisterWorker(ctx, w))
	if err := b.DrainWorker(ctx, w); !errors.Is(err, store.ErrWorkerUnknown) {
		t.Errorf("drain of one that is gone says %v", err)
	}
}
