package river_test

import (
	"testing"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/harness/harnesstest"
	"github.com/cuelight/cuelight/bench/peers/river"
)

func TestMain(m *testing.M) { harnesstest.Main(m) }

func TestSystem_RunsEveryStageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []harness.System{river.Tx(), river.Fast(), river.Default()} {
		t.Run(c.Name(), func(t *testing.T) {
			t.Parallel()
			harnesstest.CheckPipeline(t, c)
		})
	}
}

func TestSystem_StopsDuringWork(t *testing.T) {
	t.Parallel()
	for _, c := range []harness.System{river.Tx(), river.Fast()} {
		t.Run(c.Name(), func(t *testing.T) {
			t.Parallel()
			harnesstest.CheckStop(t, c)
		})
	}
}
