package store_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestPause_NotifiesWorkersAndIsInEveryHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	w := b.worker()
	notified := b.listen(b.Graph().ControlChannel())
	want := func(host string, paused ...bool) {
		t.Helper()
		out, err := b.Heartbeat(ctx, engine.HeartbeatRequest{Worker: w})
		must(t, err)
		if !slices.Equal(out.Paused, paused) || out.Draining {
			t.Errorf("the heartbeat reports paused %v, draining %v, want %v", out.Paused, out.Draining, paused)
		}
		if got, err := b.PausedStages(ctx, host); err != nil || !slices.Equal(got, paused) {
			t.Errorf("the paused stages on %s are %v, %v, want %v", host, got, err, paused)
		}
	}
	want("test", false, false, false, false, false)
	must(t, b.Pause(ctx, store.Pause{Stage: "transcode", By: "ann"}))
	must(t, b.Pause(ctx, store.Pause{Stage: "transcode", By: "bob"}))
	must(t, b.Pause(ctx, store.Pause{Host: "other"}))
	want("test", false, true, false, false, false)
	must(t, b.Pause(ctx, store.Pause{Host: "test"}))
	want("test", true, true, true, true, true)
	all, err := b.Pauses(ctx)
	if err != nil || len(all) != 3 || all[0].Stage != "transcode" || all[0].By != "ann" || all[0].At.IsZero() ||
		all[1].Host != "other" {
		t.Errorf("the pauses are %+v, %v", all, err)
	}
	for _, want := range []bool{true, false} {
		if resumed, err := b.Resume(ctx, store.Pause{Host: "test"}); err != nil || resumed != want {
			t.Errorf("Resume returned %v, %v, want %v", resumed, err, want)
		}
	}
	want("test", false, true, false, false, false)
	if n := len(notified()); n != 4 {
		t.Errorf("workers were notified %d times, want 4", n)
	}
	if err := b.Pause(ctx, store.Pause{Stage: "nonsense"}); !errors.Is(err, store.ErrNoStage) {
		t.Errorf("the pause of an unknown stage returned %v", err)
	}
}

func TestDrainWorker_AffectsOnlyThatWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	w, other := b.worker(), b.worker()
	must(t, b.DrainWorker(ctx, w))
	for id, drain := range map[store.ID]bool{w: true, other: false} {
		if out, err := b.Heartbeat(ctx, engine.HeartbeatRequest{Worker: id}); err != nil || out.Draining != drain {
			t.Errorf("the heartbeat reports draining %v, %v, want %v", out.Draining, err, drain)
		}
	}
	must(t, b.DeregisterWorker(ctx, w))
	if err := b.DrainWorker(ctx, w); !errors.Is(err, store.ErrWorkerUnknown) {
		t.Errorf("the drain of a stopped worker returned %v", err)
	}
}
