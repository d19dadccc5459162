package polling_test

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/harness/harnesstest"
	"github.com/cuelight/cuelight/bench/peers/polling"
)

func TestMain(m *testing.M) { harnesstest.Main(m) }

func TestSystem_RunsEveryStageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	harnesstest.CheckPipeline(t, polling.Every("polling_20ms", 20*time.Millisecond))
}

func TestSystem_StopsDuringWork(t *testing.T) {
	t.Parallel()
	harnesstest.CheckStop(t, polling.Every("polling_20ms", 20*time.Millisecond))
}
