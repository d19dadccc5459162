package daemon

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cuelight/cuelight/stages"
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
