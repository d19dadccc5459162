package graphile_test

import (
	"testing"

	"github.com/cuelight/cuelight/bench/harness/harnesstest"
	"github.com/cuelight/cuelight/bench/peers/graphile"
)

func TestMain(m *testing.M) { harnesstest.Main(m) }

func TestSystem_RunsEveryStageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	harnesstest.CheckPipeline(t, graphile.New())
}

func TestSystem_StopsDuringWork(t *testing.T) {
	t.Parallel()
	harnesstest.CheckStop(t, graphile.New())
}
