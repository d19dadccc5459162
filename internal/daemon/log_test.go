package daemon

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestLog_OfAnEarlierProcessOfTheHostIsNoWarning(t *testing.T) {
	t.Parallel()
	for predecessor, want := range map[bool]zapcore.Level{false: zap.WarnLevel, true: zap.InfoLevel} {
		core, logged := observer.New(zap.InfoLevel)
		logEvent(zap.New(core), nil, stages.Event{Kind: stages.WorkerLost, LostName: "studio", Predecessor: predecessor})
		all := logged.All()
		if len(all) != 1 || all[0].Level != want || all[0].ContextMap()["name"] != "studio" || predecessor == (all[0].Message == "worker lost") {
			t.Errorf("predecessor %t: %v", predecessor, all)
		}
	}
}

func TestLog_OfARemoteWorkerHasTheTimeOfTheCheck(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.InfoLevel)
	events := NewEventQueue()
	events.Observe(stages.Event{
		Kind: stages.StageCompleted, Task: store.ID{1}, Stage: "transcode", Attempt: 1, Duration: time.Minute, Reporting: 3 * time.Second,
	})
	o := WorkOptions{Log: zap.New(core)}
	o.logEvents(events, &systemd{})
	all := logged.All()
	if len(all) != 1 || all[0].ContextMap()["duration_ms"] != int64(60000) || all[0].ContextMap()["check_ms"] != int64(3000) {
		t.Errorf("logged %v", all)
	}
}
