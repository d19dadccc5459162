package daemon

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/stages"
)

// A claim that waited for a slot does not measure the latency of notifications.
func TestWakeLatency_CountsClaimsThatHadAFreeSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w wakeLatency
		if got := w.within(time.Hour); got != (report.Percentiles{}) {
			t.Errorf("of nothing it is %+v", got)
		}
		w.observe(stages.Event{Kind: stages.StageStarted, Waited: time.Second, Woken: true})
		time.Sleep(time.Hour)
		for n := range 101 {
			w.observe(stages.Event{Kind: stages.StageStarted, Waited: time.Duration(n) * time.Millisecond, Woken: true})
			w.observe(stages.Event{Kind: stages.StageStarted, Waited: 55 * time.Second})
			w.observe(stages.Event{Kind: stages.StageCompleted, Waited: 55 * time.Second, Woken: true})
		}
		want := report.Percentiles{N: 101, P50: 50 * time.Millisecond, P95: 95 * time.Millisecond, P99: 99 * time.Millisecond}
		if got := w.within(15 * time.Minute); got != want {
			t.Errorf("it is %+v, want %+v", got, want)
		}
		for range 5000 {
			w.observe(stages.Event{Kind: stages.StageStarted, Waited: time.Millisecond, Woken: true})
		}
		if got := w.within(15 * time.Minute); got.N != 1000 || got.P99 != time.Millisecond {
			t.Errorf("of many it is %+v", got)
		}
	})
}
